package compile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/schema"
)

// maxEmbedded is the largest file that ReadDir reads for @embed.
const maxEmbedded = 1 << 20

// ReadDir reads a work tree: what is in cue.mod, the CUE files, and, if one of these
// embeds others, all further files of at most 1 MiB. Hidden directories are left
// out; symbolic links and repositories within are not followed, which is
// reported as of a commit. It errs when dir cannot be read.
func ReadDir(dir string) (schema.Tree, error) {
	root, err := filepath.EvalSymlinks(dir) // the link to a work tree is no part of it
	if err != nil {
		return schema.Tree{}, fmt.Errorf("read work tree %s: %w", dir, err)
	}
	t := workTree{root: root, files: map[string]schema.File{}, odd: map[string]string{}}
	if err := filepath.WalkDir(root, t.visit); err != nil {
		return schema.Tree{}, fmt.Errorf("read work tree %s: %w", dir, err)
	}
	if t.embeds {
		for _, rel := range t.rest {
			if err := t.read(rel, maxEmbedded); err != nil {
				return schema.Tree{}, fmt.Errorf("read work tree %s: %w", dir, err)
			}
		}
	}
	return schema.Tree{Files: t.files, Diagnostics: schema.NotFollowed(t.odd)}, nil
}

// workTree gathers the files of a directory.
type workTree struct {
	root   string
	files  map[string]schema.File
	embeds bool     // a CUE file embeds others
	rest   []string // files that may be embedded
	odd    map[string]string
}

func (t *workTree) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.root, name)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	switch {
	case rel == ".":
		return nil
	case d.IsDir() && !utf8.ValidString(d.Name()):
		t.odd[rel] = "a name that is not UTF-8"
		return fs.SkipDir
	case d.IsDir() && strings.HasPrefix(d.Name(), "."):
		return fs.SkipDir
	case d.IsDir():
		if _, err := os.Lstat(filepath.Join(name, ".git")); err == nil {
			t.odd[rel] = "a submodule"
			return fs.SkipDir
		}
		return nil
	case d.Type()&fs.ModeSymlink != 0:
		t.odd[rel] = "a symbolic link"
		return nil
	case !utf8.ValidString(d.Name()):
		t.odd[rel] = "a name that is not UTF-8"
		return nil
	case !d.Type().IsRegular():
		return nil
	case !strings.HasSuffix(rel, ".cue") && !strings.HasPrefix(rel, "cue.mod/"):
		t.rest = append(t.rest, rel)
		return nil
	}
	return t.read(rel, 0)
}

// read reads a file, unless it is larger than limit (0 for none) or has gone
// since it was listed: an editor saves by replacing.
func (t *workTree) read(rel string, limit int64) error {
	name := filepath.Join(t.root, filepath.FromSlash(rel))
	if info, err := os.Lstat(name); limit > 0 && err == nil && info.Size() > limit {
		return nil
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	t.files[rel] = schema.File{Hash: "sha256:" + hex.EncodeToString(sum[:]), Data: data}
	t.embeds = t.embeds || schema.Embeds(data)
	return nil
}
