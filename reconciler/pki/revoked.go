package pki

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/identity"
)

// revocations says up to when what was issued for a name is revoked. What is
// issued later is good, so nothing needs ever be taken back.
type revocations map[identity.Name]time.Time

// Revoke makes everything void that was issued for the name until now:
// certificates, and join tokens of a machine.
func (d *Directory) Revoke(n identity.Name, now time.Time) error {
	if err := n.Check(); err != nil {
		return err
	}
	name := filepath.Join(d.path, revokedFile)
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	list, err := d.parseRevoked(b)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	list[n] = now.UTC().Truncate(time.Second)
	return writeFile(name, list.encode(), 0o600)
}

func (d *Directory) parseRevoked(b []byte) (revocations, error) {
	out := revocations{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for i := 1; lines.Scan(); i++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, stamp, _ := strings.Cut(text, " ")
		n, err := identity.Parse(d.Cell, name)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i, err)
		}
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(stamp))
		if err != nil {
			return nil, fmt.Errorf("line %d: %q: want ROLE/NAME and a time such as 2026-03-01T12:00:00Z", i, text)
		}
		if at.After(out[n]) {
			out[n] = at
		}
	}
	return out, lines.Err()
}

func (r revocations) encode() []byte {
	b := []byte("# Written by muster pki revoke: what was issued for a name until then is void.\n")
	names := slices.SortedFunc(maps.Keys(r), func(a, b identity.Name) int { return strings.Compare(a.String(), b.String()) })
	for _, n := range names {
		b = fmt.Appendf(b, "%s %s\n", n, r[n].Format(time.RFC3339))
	}
	return b
}

// check errs with identity.ErrRefused when what was issued for n at that time
// is revoked.
func (r revocations) check(n identity.Name, issued time.Time) error {
	if at, ok := r[n]; ok && !issued.After(at) {
		return fmt.Errorf("%w: %s was revoked at %s, with all that was issued until then", identity.ErrRefused, n, at.Format(time.RFC3339))
	}
	return nil
}
