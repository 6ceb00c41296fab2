package scaffold

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

//go:embed all:files
var files embed.FS

// DefaultModule is the module path for a repository that nobody imports.
const DefaultModule = "example.com/config"

var moduleForm = lazyregexp.New(`^[a-z0-9][-a-z0-9]*(\.[a-z0-9][-a-z0-9]*)+(/[A-Za-z0-9][-A-Za-z0-9._~]*)*$`)

// Files returns the content of each file by its path, with slashes, relative
// to the root of the repository. Module is a CUE module path without a major
// version, such as example.com/config. It errs when module or cell is not one.
func Files(module, cell string) (map[string][]byte, error) {
	if !moduleForm.MatchString(module) {
		return nil, fmt.Errorf("module %q: want a domain and a path, such as %s", module, DefaultModule)
	}
	if err := schema.CheckName(cell); err != nil {
		return nil, fmt.Errorf("cell: %w", err)
	}
	fill := strings.NewReplacer("__MODULE__", module, "__CELL__", cell)
	out := map[string][]byte{}
	err := fs.WalkDir(files, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		out[fill.Replace(strings.TrimPrefix(name, "files/"))] = []byte(fill.Replace(string(b)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read embedded files: %w", err)
	}
	for name, b := range Definitions() {
		out[name] = b
	}
	return out, nil
}

// Mode returns the permissions of a file of Files: scripts can be executed.
func Mode(name string) fs.FileMode {
	if strings.HasPrefix(name, ".githooks/") || strings.HasPrefix(name, ".ci/") {
		return 0o755
	}
	return 0o644
}
