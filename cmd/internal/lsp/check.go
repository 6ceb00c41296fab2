package lsp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// quiet is how long nothing is to be typed before a check begins.
const quiet = 150 * time.Millisecond

// diagnostic is a mistake as the protocol has it.
type diagnostic struct {
	Range    span        `json:"range"`
	Severity int         `json:"severity"`
	Code     schema.Rule `json:"code,omitempty"`
	Source   string      `json:"source"`
	Message  string      `json:"message"`
	Tags     []int       `json:"tags,omitempty"`
}

// deprecated is the protocol's DiagnosticTag.Deprecated: editors strike the name through.
const deprecated = 2

// check checks the repositories of open documents after each change, and publishes what it
// finds. What is typed meanwhile is checked next.
func (s *server) check(ctx context.Context) {
	published := map[string]map[string]bool{} // files with mistakes, by root
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.settle(ctx)
		open := s.docs.open()
		roots := map[string]bool{}
		for name := range open {
			if root := rootOf(name); root != "" {
				roots[root] = true
			}
		}
		for root := range published {
			roots[root] = true // until nothing is wrong there
		}
		for _, root := range slices.Sorted(maps.Keys(roots)) {
			found, err := s.look(ctx, root, open)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				fmt.Fprintf(s.cfg.Log, "muster: check %s: %v\n", root, err)
				continue
			}
			if published[root] = s.publish(found, published[root]); len(published[root]) == 0 {
				delete(published, root)
			}
		}
	}
}

// settle waits until nothing has changed for a while.
func (s *server) settle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-time.After(quiet):
			return
		}
	}
}

// look returns the mistakes of a repository by file.
func (s *server) look(ctx context.Context, root string, open map[string][]byte) (map[string][]diagnostic, error) {
	tree, err := s.cfg.Read(root)
	if err != nil {
		return nil, err
	}
	for name, text := range open {
		rel, err := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		_, there := tree.Files[rel]
		if err != nil || !filepath.IsLocal(rel) || rootOf(name) != root || !there && !strings.HasSuffix(rel, ".cue") {
			continue
		}
		sum := sha256.Sum256(text)
		tree.Files[rel] = schema.File{Hash: "sha256:" + hex.EncodeToString(sum[:]), Data: text}
	}
	all, err := s.cfg.Check(ctx, root, tree)
	if err != nil {
		return nil, err
	}
	found := map[string][]diagnostic{}
	for _, d := range all {
		if d.Path == "" {
			d.Path = "cue.mod/module.cue"
		}
		severity := 1
		if d.Severity == schema.Warning {
			severity = 2
		}
		name := filepath.Join(root, filepath.FromSlash(d.Path))
		shown := diagnostic{
			Range: word(tree.Files[d.Path].Data, d.Line, d.Column), Severity: severity, Code: d.Rule, Source: "muster", Message: text(d),
		}
		if d.Rule == schema.RuleDeprecated {
			shown.Tags = []int{deprecated}
		}
		found[name] = append(found[name], shown)
	}
	return found, nil
}

// text returns a mistake in words, without its place.
func text(d schema.Diagnostic) string {
	d.Position = schema.Position{}
	if d.Hint == "" {
		return d.Error()
	}
	return schema.WithHint(d.Error(), d.Hint)
}

// publish sends the mistakes of a repository, and of files that had some that they have
// none any more. It returns the files that have some.
func (s *server) publish(found map[string][]diagnostic, before map[string]bool) map[string]bool {
	now := map[string]bool{}
	send := func(name string, ds []diagnostic) {
		_ = s.editor.send(map[string]any{"method": "textDocument/publishDiagnostics", "params": map[string]any{"uri": uriOf(name), "diagnostics": ds}})
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		now[name] = true
		send(name, found[name])
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !now[name] {
			send(name, []diagnostic{})
		}
	}
	return now
}
