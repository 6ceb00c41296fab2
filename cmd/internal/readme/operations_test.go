package readme

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

// TestOperations types what docs/operations.md says of a cell on several
// machines, with two ports that are free in the place of those of the page.
func TestOperations(t *testing.T) {
	t.Parallel()
	const page = "docs/operations.md"
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(string(b))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if len(blocks) < 5 {
		t.Fatalf("%s has %d blocks that are run, want 5 or more", page, len(blocks))
	}
	ports := strings.NewReplacer(fixedPort, freePort(t), "7421", freePort(t))
	for i := range blocks {
		blocks[i].text = ports.Replace(blocks[i].text)
	}
	dir := shortDir(t)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (&tour{dir: dir, home: home, bin: binaries.Dir(t)}).run(t.Context(), blocks); err != nil {
		t.Errorf("%s: %v", page, err)
	}
}
