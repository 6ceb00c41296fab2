package vendoring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// Split returns the source and the version of what a user wrote: PATH, PATH@VERSION or
// URL@VERSION. The @ of a URL's user is none of a version.
func Split(text string) (source, version string) {
	if _, err := os.Stat(text); err == nil {
		return text, ""
	}
	from := 0
	if at := strings.Index(text, "://"); at >= 0 {
		from = at + len("://")
		from += max(0, strings.IndexByte(text[from:], '/'))
	} else if at := strings.IndexByte(text, ':'); at >= 0 && git.IsRemote(text) { // git@host:path
		from = at
	}
	at := strings.LastIndexByte(text[from:], '@')
	if at < 0 {
		return text, ""
	}
	return text[:from+at], text[from+at+1:]
}

// fetched is a module as its source has it.
type fetched struct {
	*compile.Vendorable
	commit string
}

// fetch reads the module at a source, in the work tree itself where no version is named.
func (r *Repository) fetch(ctx context.Context, source, version string) (*fetched, error) {
	tree, err := r.read(ctx, source, version)
	if err != nil {
		return nil, err
	}
	v, err := compile.NewVendorable(tree)
	if err != nil {
		return nil, wrap(err, "%s", name(source, version))
	}
	if within(v.Module, r.module) {
		return nil, schema.Hintf("import its directory", "%s is the module %s, which is this repository's own", name(source, version), v.Module)
	}
	return &fetched{v, tree.Commit}, nil
}

// wrap puts what is at fault before an error, and keeps its hint.
func wrap(err error, format string, args ...any) error {
	what, hint := schema.HintOf(err)
	if hint == "" {
		return fmt.Errorf(format+": %w", append(args, err)...)
	}
	return &schema.HintedError{Message: fmt.Sprintf(format, args...) + ": " + what, Hint: hint, Err: err}
}

// within reports whether one of two modules lies in the other.
func within(qualified, module string) bool {
	path, _, _ := strings.Cut(qualified, "@")
	return strings.HasPrefix(path+"/", module+"/") || strings.HasPrefix(module+"/", path+"/")
}

// name is how messages name a version of a source.
func name(source, version string) string {
	if version == "" {
		return git.Redact(source)
	}
	return git.Redact(source) + "@" + version
}

func (r *Repository) read(ctx context.Context, source, version string) (schema.Tree, error) {
	cfg := git.Config{URL: source, Log: slog.New(slog.DiscardHandler)}
	switch {
	case !git.IsRemote(source):
		cfg.URL = r.local(source)
		if version == "" {
			return readDir(cfg.URL, source)
		}
	case version == "":
		return schema.Tree{}, schema.Hintf("name a tag, a branch or a commit: "+git.Redact(source)+"@v1.0.0", "no version of %s is named", git.Redact(source))
	default:
		dir, err := os.MkdirTemp("", "muster-vendor-")
		if err != nil {
			return schema.Tree{}, err
		}
		defer func() { _ = os.RemoveAll(dir) }() // it is temporary in any case
		cfg.Dir, cfg.Rev, cfg.Auth = dir, version, r.auth
	}
	repo, err := git.Open(ctx, cfg)
	if err != nil {
		return schema.Tree{}, err
	}
	var commit string
	if cfg.Rev != "" {
		commit, err = repo.Head(ctx)
	} else {
		commit, err = repo.Resolve(ctx, version)
	}
	if err != nil {
		return schema.Tree{}, err
	}
	return repo.Tree(ctx, commit)
}

func readDir(dir, source string) (schema.Tree, error) {
	if info, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir() {
		return schema.Tree{}, schema.Hintf("name the directory of a CUE module, or URL@VERSION of a git repository with one", "there is no directory %s", source)
	}
	return compile.ReadDir(dir)
}

// local returns where a directory is that the lock file names.
func (r *Repository) local(source string) string {
	if path, ok := strings.CutPrefix(source, "file://"); ok {
		source = path
	}
	if filepath.IsAbs(source) {
		return source
	}
	return filepath.Join(r.dir, filepath.FromSlash(source))
}

// origin returns what of the URL of a git repository says which server is asked.
func origin(source string) string {
	scheme, rest, ok := strings.Cut(source, "://")
	if !ok { // host:path
		host, _, _ := strings.Cut(source, ":")
		return host
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}
