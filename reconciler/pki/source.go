package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/schema/identity"
)

// lookEvery is how often a file is looked at, at most.
const lookEvery = time.Second

// watched is a file whose content is read again when it has changed. What is
// wrong with a new content is logged once, and the last good one stays.
type watched[T any] struct {
	name  string
	parse func(name string) (T, error)
	log   *slog.Logger

	mu    sync.Mutex // guards what follows
	value T
	stamp string // of the file that was read last, whether it was good or not
	reads uint64 // how often it was read again
	look  time.Time
}

// watch reads a file for the first time.
func watch[T any](name string, log *slog.Logger, parse func(name string) (T, error)) (*watched[T], error) {
	w := &watched[T]{name: name, parse: parse, log: log, stamp: stampOf(name), look: time.Now()}
	var err error
	w.value, err = parse(name)
	return w, err
}

// stampOf changes when a file does.
func stampOf(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return err.Error()
	}
	var inode uint64
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano(), inode)
}

// expire has the next get look at the file, however recent the last look was.
func (w *watched[T]) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look = time.Time{}
}

// get returns the content as of at most lookEvery ago.
func (w *watched[T]) get() T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.look) >= lookEvery {
		w.look = now
		if stamp := stampOf(w.name); stamp != w.stamp {
			w.stamp = stamp
			if value, err := w.parse(w.name); err != nil {
				w.log.Error("file not read again: its last good content is used", "err", err)
			} else {
				w.value = value
				w.reads++
				w.log.Info("file read again", "file", w.name)
			}
		}
	}
	return w.value
}

// read returns how often the content was read again, as of at most lookEvery ago.
func (w *watched[T]) read() uint64 {
	w.get()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

// Pair reads a certificate, those beside it, and the key from PEM files; key
// may be the same file.
func Pair(certificate, key string) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(certificate, key)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, err // names the file
	}
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certificate, key, err)
	}
	return &c, nil
}

// Authorities reads the authorities in a PEM file, at least one.
func Authorities(name string) ([]*x509.Certificate, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	list, err := decodeCertificates(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []*x509.Certificate
	for _, c := range list {
		if c.IsCA {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no certificate in it is an authority's", name)
	}
	return out, nil
}

// masterPair reads the master's certificate.
func (d *Directory) masterPair(name string) (*tls.Certificate, error) {
	if _, err := readPrivate(name); err != nil {
		return nil, err
	}
	c, err := Pair(name, name)
	if err != nil {
		return nil, err
	}
	n, err := identity.Of(c.Leaf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if n.Role != identity.Master || n.Cell != d.Cell || c.Leaf.CheckSignatureFrom(d.CA) != nil {
		return nil, fmt.Errorf("%s: a certificate of %s of cell %q, not of the master, by this authority", name, n, n.Cell)
	}
	return c, nil
}

// revokedList reads the revocations.
func (d *Directory) revokedList(name string) (revocations, error) {
	b, err := os.ReadFile(filepath.Clean(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	list, err := d.parseRevoked(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
