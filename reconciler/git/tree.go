package git

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/musterhq/muster/schema"
)

// Limits of a tree. They are far above any sane config repository and keep a
// mistaken or hostile one from taking the master's memory.
const (
	maxFiles    = 250_000
	maxSiblings = 20_000 // CUE files of one directory
	maxBytes    = 256 << 20
	maxFile     = 16 << 20
	maxEmbedded = 1 << 20 // as in compile.ReadDir
	maxDirs     = 100_000
	maxDepth    = 64
	keepTrees   = 4 // trees whose parts stay in the cache
)

// trees caches what was read.
type trees struct {
	dirs  map[dirKey]*dir
	calls int
}

// dirKey is a directory's content; in cue.mod other files matter.
type dirKey struct {
	hash   plumbing.Hash
	module bool
}

// dir is a directory as far as it matters, with sums over all below it.
type dir struct {
	files []file // that always matter
	rest  []file // that matter if something embeds
	dirs  []child
	odd   []oddity

	nFiles, nRest, nOdd int // at most over
	embeds              bool
	used                int // the last call of Tree that used it

	whole *schema.Tree // made from it as a root; Commit is not set
}

type file struct {
	name string
	hash string
	data []byte // nil in rest until needed
	left bool   // in rest: too large
}

type child struct {
	name string
	*dir
}

// oddity is an entry that is not followed, or too much: then it refuses its
// directory.
type oddity struct {
	name, what string
	refused    bool
}

// over is a count that is over every limit; sums stop there, since a tree may
// name the same directory again and again.
const over = 1 << 30

func newTrees() trees { return trees{dirs: map[dirKey]*dir{}} }

// Tree returns what matters of a commit. The result shares memory with the
// cache: it must not be changed.
func (r *Repo) Tree(ctx context.Context, commit string) (schema.Tree, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !plumbing.IsHash(commit) {
		return schema.Tree{}, fmt.Errorf("repository %s: %q is not a full commit hash", r.name, commit)
	}
	var tree *schema.Tree
	var by schema.Authorship
	err := r.again(ctx, func() error {
		c, err := r.commit(plumbing.NewHash(commit))
		if err != nil {
			return err
		}
		by = schema.NewAuthorship(c.Author.Name, c.Message, c.Committer.When)
		tree, err = r.wholeTree(ctx, c.TreeHash)
		if err != nil {
			err = fmt.Errorf("repository %s: commit %s: %w", r.name, commit, err)
		}
		return err
	})
	if err != nil {
		return schema.Tree{}, err
	}
	out := *tree
	out.Commit, out.By = commit, by
	return out, nil
}

func (r *Repo) wholeTree(ctx context.Context, root plumbing.Hash) (*schema.Tree, error) {
	t := &r.tree
	t.calls++
	d, err := r.dir(ctx, dirKey{hash: root}, "")
	if err != nil {
		return nil, err
	}
	if d.whole == nil {
		if d.whole, err = r.flatten(d); err != nil {
			return nil, err
		}
	}
	for key, d := range t.dirs {
		if d.used <= t.calls-keepTrees {
			delete(t.dirs, key)
		}
	}
	return d.whole, nil
}

// dir returns a directory from the cache, or reads it.
func (r *Repo) dir(ctx context.Context, key dirKey, at string) (*dir, error) {
	if d, there := r.tree.dirs[key]; there {
		r.tree.use(d)
		return d, nil
	}
	if len(r.tree.dirs) >= maxDirs*keepTrees {
		return nil, schema.Hintf("keep the config in a repository of its own", "more than %d directories", maxDirs)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := r.entries(key.hash)
	if err != nil {
		return nil, fmt.Errorf("directory %q: %w", at, err)
	}
	d := &dir{used: r.tree.calls}
	if n, first := siblings(entries); n > maxSiblings {
		d.odd = []oddity{{first, fmt.Sprintf("the directory has %d CUE files, more than %d", n, maxSiblings), true}}
		d.sum()
		r.tree.dirs[key] = d
		return d, nil
	}
	for _, e := range entries {
		if strings.ContainsAny(e.Name, "/\x00") || e.Name == "" || e.Name == "." || e.Name == ".." {
			return nil, fmt.Errorf("directory %q: entry %q is not a name", at, e.Name)
		}
		if e.Mode != filemode.Dir || !utf8.ValidString(e.Name) {
			err = r.entry(d, e, key.module)
		} else if !strings.HasPrefix(e.Name, ".") {
			var sub *dir
			below := dirKey{e.Hash, key.module || at == "" && e.Name == "cue.mod"}
			if sub, err = r.dir(ctx, below, path.Join(at, e.Name)); err != nil {
				return nil, err
			}
			d.dirs = append(d.dirs, child{e.Name, sub})
		}
		if err != nil {
			return nil, fmt.Errorf("file %q: %w", path.Join(at, e.Name), err)
		}
	}
	d.sum()
	r.tree.dirs[key] = d
	return d, nil
}

// siblings counts the CUE files of a directory and returns the first.
func siblings(entries []object.TreeEntry) (n int, first string) {
	for _, e := range entries {
		if e.Mode.IsFile() && strings.HasSuffix(e.Name, ".cue") {
			if n++; n == 1 {
				first = e.Name
			}
		}
	}
	return n, first
}

// entry adds one that is no directory, or none that has a usable name, to d.
func (r *Repo) entry(d *dir, e object.TreeEntry, module bool) error {
	switch {
	case e.Mode == filemode.Symlink:
		d.odd = append(d.odd, oddity{name: e.Name, what: "a symbolic link"})
	case e.Mode == filemode.Submodule:
		d.odd = append(d.odd, oddity{name: e.Name, what: "a submodule"})
	case !utf8.ValidString(e.Name):
		d.odd = append(d.odd, oddity{name: e.Name, what: "a name that is not UTF-8"})
	case module || strings.HasSuffix(e.Name, ".cue"):
		data, err := r.read(e.Hash, plumbing.BlobObject, maxFile)
		if errors.Is(err, errTooLarge) {
			d.odd = append(d.odd, oddity{e.Name, fmt.Sprintf("the file has more than %d MiB", maxFile>>20), true})
			return nil
		}
		if err != nil {
			return err
		}
		d.files = append(d.files, file{name: e.Name, hash: e.Hash.String(), data: data})
	default:
		d.rest = append(d.rest, file{name: e.Name, hash: e.Hash.String()})
	}
	return nil
}

// use marks d and all below it as part of the current call's tree.
func (t *trees) use(d *dir) {
	if d.used == t.calls {
		return
	}
	d.used = t.calls
	for _, c := range d.dirs {
		t.use(c.dir)
	}
}

func (d *dir) sum() {
	d.nFiles, d.nRest, d.nOdd = len(d.files), len(d.rest), len(d.odd)
	for _, f := range d.files {
		d.embeds = d.embeds || schema.Embeds(f.data)
	}
	for _, c := range d.dirs {
		d.nFiles = min(over, d.nFiles+c.nFiles)
		d.nRest = min(over, d.nRest+c.nRest)
		d.nOdd = min(over, d.nOdd+c.nOdd)
		d.embeds = d.embeds || c.embeds
	}
}

// flatten lists all files below root by path.
func (r *Repo) flatten(root *dir) (*schema.Tree, error) {
	n := root.nFiles
	if root.embeds {
		n += root.nRest
	}
	if n > maxFiles || root.nOdd > maxFiles {
		return nil, schema.Hintf("keep the config in a repository of its own", "more than %d configuration files", maxFiles)
	}
	f := flattener{
		repo: r, embeds: root.embeds, odd: map[string]string{},
		tree: &schema.Tree{Files: make(map[string]schema.File, n)},
	}
	if err := f.add(root, ""); err != nil {
		return nil, err
	}
	f.tree.Diagnostics = append(f.tree.Diagnostics, schema.NotFollowed(f.odd)...)
	return f.tree, nil
}

type flattener struct {
	repo   *Repo
	embeds bool
	odd    map[string]string
	tree   *schema.Tree
	bytes  int
}

// refuse says what is too much at a path.
func (f *flattener) refuse(at, what string) {
	f.tree.Diagnostics = append(f.tree.Diagnostics, schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleLimit, Position: schema.Position{Path: strings.ToValidUTF8(at, "\uFFFD"), Line: 1, Column: 1},
		Message: what, Hint: "keep what is no configuration in a repository of its own",
	})
}

// add lists what is in d; at is its path with a slash behind, or empty.
func (f *flattener) add(d *dir, at string) error {
	if d.nFiles+d.nOdd == 0 && (!f.embeds || d.nRest == 0) {
		return nil
	}
	if strings.Count(at, "/") > maxDepth {
		f.refuse(at+"…", fmt.Sprintf("directories nest deeper than %d", maxDepth))
		return nil
	}
	for _, o := range d.odd {
		if o.refused {
			f.refuse(at+o.name, o.what)
		} else {
			f.odd[at+o.name] = o.what
		}
	}
	for _, file := range d.files {
		if err := f.put(file, at); err != nil {
			return err
		}
	}
	for i := range d.rest {
		if !f.embeds {
			break
		}
		file := &d.rest[i]
		if err := f.repo.readRest(file, at+file.name); err != nil {
			return err
		}
		if file.left {
			continue
		}
		if err := f.put(*file, at); err != nil {
			return err
		}
	}
	for _, c := range d.dirs {
		if err := f.add(c.dir, at+c.name+"/"); err != nil {
			return err
		}
	}
	return nil
}

func (f *flattener) put(file file, at string) error {
	if f.bytes += len(file.data); f.bytes > maxBytes {
		return schema.Hintf("keep the config in a repository of its own", "more than %d bytes in configuration files", maxBytes)
	}
	f.tree.Files[at+file.name] = schema.File{Hash: file.hash, Data: file.data}
	return nil
}

// readRest reads a file that may be embedded, once.
func (r *Repo) readRest(f *file, name string) error {
	if f.data != nil || f.left {
		return nil
	}
	data, err := r.read(plumbing.NewHash(f.hash), plumbing.BlobObject, maxEmbedded)
	switch {
	case errors.Is(err, errTooLarge):
		f.left = true
	case err != nil:
		return fmt.Errorf("file %q: %w", name, err)
	default:
		f.data = data
	}
	return nil
}
