package vendoring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/cmd/internal/repofiles"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/vendored"
)

// State is what became of a module.
type State string

// The states.
const (
	Current  State = "current"  // its files are those of the lock file
	Differs  State = "differs"  // they are not, and nothing was written
	Restored State = "restored" // they are again
	Added    State = "added"    // it is new
	Changed  State = "changed"  // it is of another version, or its source has other files now
)

// Result is a module after a command.
type Result struct {
	vendored.Module

	State State `json:"state"`
	Files int   `json:"files"` // of the module that were written or removed
}

// Repository is a config repository's work tree.
type Repository struct {
	dir    string
	auth   git.Auth
	module string // its path
	tree   schema.Tree
	lock   vendored.Lock
	writes map[string][]byte // by path; nil removes
}

// Open reads the modules of the repository at dir.
func Open(dir string, tree schema.Tree, auth git.Auth) (*Repository, error) {
	r := &Repository{dir: dir, auth: auth, tree: tree, writes: map[string][]byte{}}
	var err error
	if r.module, err = compile.ModulePath(tree); err != nil {
		return nil, err
	}
	if f, ok := tree.Files[vendored.File]; ok {
		lock, fault := vendored.Parse(f.Data)
		if fault != nil {
			return nil, schema.Hintf(fault.Hint, "%s: %s", fault.Position, fault.Message)
		}
		r.lock = lock
	}
	return r, nil
}

// Add brings a module into the repository, with those that it has vendored itself and the
// repository does not have: these are first among the results. source is as Split gives it,
// relative to the working directory.
func (r *Repository) Add(ctx context.Context, source, version string) ([]Result, error) {
	if !git.IsRemote(source) && !filepath.IsAbs(source) && !strings.HasPrefix(source, "file://") {
		from, err := filepath.Abs(r.dir)
		if err != nil {
			return nil, err
		}
		to, err := filepath.Abs(source)
		if err != nil {
			return nil, err
		}
		if source, err = filepath.Rel(from, to); err != nil {
			return nil, err
		}
		source = filepath.ToSlash(source)
	}
	f, err := r.fetch(ctx, source, version)
	if err != nil {
		return nil, err
	}
	out, err := r.others(f, source)
	if err != nil {
		return nil, err
	}
	m := vendored.Module{Module: f.Module, Source: source, Version: version, Commit: f.commit, Sum: vendored.Sum(f.Module, f.Files)}
	state := Added
	if old := r.lock.Find(m.Path()); old != nil && *old == m {
		state = Current
	} else if old != nil {
		state = Changed
	}
	if out = append(out, r.put(m, f.Files, state)); out[len(out)-1].Files > 0 && state == Current {
		out[len(out)-1].State = Restored
	}
	for _, target := range f.Needs {
		if r.lock.Find(target) == nil {
			return nil, schema.Hintf("vendor the module of that package first: muster vendor URL@VERSION", "%s imports %s, which is not vendored", name(source, version), target)
		}
	}
	return out, r.write()
}

// others puts what a module has vendored itself, as far as the repository has not got it.
func (r *Repository) others(f *fetched, source string) (out []Result, err error) {
	for _, m := range f.Lock.Modules {
		if r.lock.Find(m.Path()) != nil || !slices.ContainsFunc(f.Needs, func(target string) bool { return below(target, m.Path()) }) && len(f.Needs) == 0 {
			continue
		}
		if !git.IsRemote(m.Source) && !filepath.IsAbs(m.Source) {
			if git.IsRemote(source) {
				return nil, schema.Hintf("vendor it first, from where it is for you: muster vendor URL@VERSION",
					"%s is vendored in %s from the directory %s of whoever did it", m.Path(), git.Redact(source), m.Source)
			}
			m.Source = path.Join(source, m.Source)
		}
		out = append(out, r.put(m, f.Others[m.Module], Added))
	}
	return out, nil
}

func below(target, module string) bool {
	return target == module || strings.HasPrefix(target, module+"/")
}

// put notes what to write for a module to be in the repository.
func (r *Repository) put(m vendored.Module, files map[string][]byte, state State) Result {
	r.lock.Put(m)
	out := Result{Module: m, State: state}
	for name, data := range files {
		at := m.Dir() + "/" + name
		if have, ok := r.tree.Files[at]; !ok || !bytes.Equal(have.Data, data) {
			r.writes[at] = data
			out.Files++
		}
	}
	for name := range r.tree.Files {
		if rest, ok := strings.CutPrefix(name, m.Dir()+"/"); ok {
			if _, wanted := files[rest]; !wanted {
				r.writes[name] = nil
				out.Files++
			}
		}
	}
	return out
}

// Check holds the files of all modules against the lock file.
func (r *Repository) Check() (out []Result) {
	for _, m := range r.lock.Modules {
		state := Differs
		if r.current(&m) {
			state = Current
		}
		out = append(out, Result{Module: m, State: state})
	}
	return out
}

func (r *Repository) current(m *vendored.Module) bool {
	files := map[string][]byte{}
	for name, f := range r.tree.Files {
		if rest, ok := strings.CutPrefix(name, m.Dir()+"/"); ok {
			files[rest] = f.Data
		}
	}
	return vendored.Sum(m.Module, files) == m.Sum
}

// Restore brings back the files of the modules that are not those of the lock file. It asks
// the sources of these, and of no others.
func (r *Repository) Restore(ctx context.Context) ([]Result, error) {
	out := r.Check()
	var ask []vendored.Module
	for i := range out {
		if out[i].State != Current {
			ask = append(ask, out[i].Module)
		}
	}
	if err := r.oneServer(ask); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].State == Current {
			continue
		}
		m := out[i].Module
		f, err := r.again(ctx, &m)
		if err != nil {
			return nil, err
		}
		out[i] = r.put(m, f.Files, Restored)
	}
	return out, r.write()
}

// oneServer errs if credentials would be shown to several servers: who changes the lock file would receive them.
func (r *Repository) oneServer(modules []vendored.Module) error {
	if r.auth == (git.Auth{}) {
		return nil
	}
	first := ""
	for _, m := range modules {
		switch {
		case !git.IsRemote(m.Source):
		case first == "":
			first = m.Source
		case origin(m.Source) != origin(first):
			return schema.Hintf("muster vendor URL@VERSION for each, with what is for its server",
				"credentials are given, which are for one server, and %s and %s are on two", git.Redact(first), git.Redact(m.Source))
		}
	}
	return nil
}

// again fetches what a module was when it was vendored.
func (r *Repository) again(ctx context.Context, m *vendored.Module) (*fetched, error) {
	f, err := r.fetch(ctx, m.Source, m.Version)
	if m.Commit != "" && (err != nil || f.commit != m.Commit) { // the branch has moved on, or is gone
		f, err = r.fetch(ctx, m.Source, m.Commit)
	}
	if err != nil {
		return nil, err
	}
	if sum := vendored.Sum(f.Module, f.Files); sum != m.Sum {
		return nil, schema.Hintf("if that is right: muster vendor --update, and look at the difference in git",
			"%s is not what was vendored: its sum is %s, want %s", name(m.Source, m.Version), sum, m.Sum)
	}
	return f, nil
}

// release is what tags are called that never move.
var release = lazyregexp.New(`^v?[0-9]+\.[0-9]+`)

// Update takes what the sources of all modules have now under the versions that they were
// vendored with: of a directory its files, of a branch its head. A tag that names a release
// must be what it was.
func (r *Repository) Update(ctx context.Context) (out []Result, err error) {
	if err := r.oneServer(r.lock.Modules); err != nil {
		return nil, err
	}
	for _, m := range slices.Clone(r.lock.Modules) {
		f, err := r.fetch(ctx, m.Source, m.Version)
		if err != nil {
			return nil, err
		}
		now := m
		now.Module, now.Commit, now.Sum = f.Module, f.commit, vendored.Sum(f.Module, f.Files)
		switch {
		case now.Path() != m.Path():
			return nil, schema.Hintf("remove the old one from "+vendored.File+" and from cue.mod/pkg, and vendor the new one", "%s is the module %s now, and was %s", name(m.Source, m.Version), f.Module, m.Module)
		case now.Sum != m.Sum && release.MatchString(m.Version):
			return nil, schema.Hintf("ask its authors; if that is right: muster vendor "+name(m.Source, m.Version),
				"the tag %s of %s has moved: its sum is %s, and was %s", m.Version, git.Redact(m.Source), now.Sum, m.Sum)
		}
		state := Current
		if now != m {
			state = Changed
		}
		res := r.put(now, f.Files, state)
		if res.Files > 0 && state == Current {
			res.State = Restored
		}
		out = append(out, res)
	}
	return out, r.write()
}

// write writes what was noted.
func (r *Repository) write() error {
	for name := range r.writes {
		if err := r.noLinks(name); err != nil {
			return err
		}
	}
	data, err := r.lock.Encode()
	if err != nil {
		return err
	}
	if !bytes.Equal(data, r.tree.Files[vendored.File].Data) && len(r.lock.Modules) > 0 {
		r.writes[vendored.File] = data
	}
	if err := repofiles.Replace(r.dir, r.writes, nil); err != nil {
		return fmt.Errorf("write what is vendored: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.writes)) {
		if r.writes[name] == nil {
			r.removeEmpty(path.Dir(name))
		}
	}
	return nil
}

// noLinks errs when one of the directories above a file is a symbolic link.
func (r *Repository) noLinks(name string) error {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		info, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(dir)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return schema.Hintf("remove it", "%s is not a directory", dir)
		}
	}
	return nil
}

// removeEmpty removes a directory and those above it as far as they are empty.
func (r *Repository) removeEmpty(dir string) {
	for strings.HasPrefix(dir, vendored.Dir+"/") && os.Remove(filepath.Join(r.dir, filepath.FromSlash(dir))) == nil {
		dir = path.Dir(dir)
	}
}
