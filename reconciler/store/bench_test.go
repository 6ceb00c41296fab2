package store

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
)

func benchStore(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := OpenEmbedded(b.Context(), EmbeddedConfig{Dir: dir, Cell: "c", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Campaign(b.Context(), "bench"); err != nil {
		b.Fatal(err)
	}
	return s
}

func fullBatch(round int) []model.Write {
	writes := make([]model.Write, maxOps)
	for i := range writes {
		writes[i] = model.Write{Key: fmt.Sprintf("chunk/u/j%d/%d", round, i), Value: noise(uint64(i), 1024)}
	}
	return writes
}

// BenchmarkCommit stores 128 documents of 1 KiB in one transaction.
func BenchmarkCommit(b *testing.B) {
	s := benchStore(b, b.TempDir())
	defer s.Close()
	writes := fullBatch(0)
	for b.Loop() {
		if err := s.Commit(b.Context(), writes); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReopen opens a data directory of 12,800 documents of 1 KiB, leads
// and loads them.
func BenchmarkReopen(b *testing.B) {
	dir := b.TempDir()
	s := benchStore(b, dir)
	for round := range 100 {
		if err := s.Commit(b.Context(), fullBatch(round)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		s = benchStore(b, dir)
		if docs, err := s.Load(b.Context()); err != nil || len(docs) != 12_801 {
			b.Fatal(len(docs), err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
