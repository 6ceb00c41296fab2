package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReadSized: a file is read whole that has become longer or shorter since its size was asked for.
func TestReadSized(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	for _, text := range []string{"", "0123456789"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{0, 3, 9, 10, 11, 5000} {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := readSized(f, size); string(b) != text || err != nil {
				t.Errorf("%q, said to have %d bytes: %q, %v", text, size, b, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
