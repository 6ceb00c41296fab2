package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/musterhq/muster/schema"
)

// maxLine is how long a line of a log may be, in bytes: what a machine offers is the largest
// part of one.
const maxLine = 1 << 20

// Read reads an event log: records as JSON, one a line, as muster events -o json prints them and
// the master keeps them. Records with an id that was there already are left out, so that logs may
// be put together that overlap. It errs with a schema.HintedError that names the line.
func Read(in io.Reader) ([]schema.EventRecord, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	var out []schema.EventRecord
	seen := map[uint64]bool{}
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var r schema.EventRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, schema.Hintf("muster events --limit 0 -o json prints one", "line %d: not an event as JSON: %v", n, err)
		}
		if r.Kind == "" || r.At.IsZero() || r.ID == 0 {
			return nil, schema.Hintf("muster events --limit 0 -o json prints one", "line %d: not an event: want id, at and kind", n)
		}
		if !seen[r.ID] {
			seen[r.ID] = true
			out = append(out, r)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes", n+1, maxLine)
	} else if err != nil {
		return nil, err
	}
	slices.SortStableFunc(out, func(a, b schema.EventRecord) int { return int(min(1, max(-1, int64(a.ID)-int64(b.ID)))) })
	return out, nil
}
