package lsp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
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

// The protocol's DiagnosticSeverity.
const (
	severityError       = 1
	severityWarning     = 2
	severityInformation = 3
)

// deprecated is the protocol's DiagnosticTag.Deprecated: editors strike the name through.
const deprecated = 2

// rest is how long nothing is to be typed before what takes long is checked, too.
const rest = 2 * time.Second

// shown is what was published of a repository: of each of its files with mistakes, as it was sent.
type shown map[string]string

// check checks the repositories of open documents after each change, and publishes what it
// finds. A check that is out of date, since something has changed meanwhile, is cancelled.
func (s *server) check(ctx context.Context) {
	published := map[string]shown{} // by root
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for s.settle(ctx); !s.round(ctx, published); {
			s.settle(ctx)
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

// round checks what there is now. It returns false when that has changed before the end.
func (s *server) round(ctx context.Context, published map[string]shown) bool {
	current, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.checkAll(current, published)
	}()
	select {
	case <-ended:
		return true
	case <-s.wake:
		cancel()
		<-ended
		return false
	}
}

// checkAll checks all repositories: what takes little of each, and then the rest, while something is
// typed only after a while.
func (s *server) checkAll(ctx context.Context, published map[string]shown) {
	open := s.docs.now()
	defer func() {
		if ctx.Err() != nil {
			s.docs.again(open.edited)
		}
	}()
	roots := map[string]bool{}
	for name := range open.text {
		if root := rootOf(name); root != "" {
			roots[root] = true
		}
	}
	for root := range published {
		roots[root] = true // until nothing is wrong there
	}
	var left []string
	for _, root := range slices.Sorted(maps.Keys(roots)) {
		if s.look(ctx, target{root: root, open: open}, published) {
			left = append(left, root)
		}
	}
	if len(left) == 0 || ctx.Err() != nil {
		return
	}
	if open.typing {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
	for _, root := range left {
		s.look(ctx, target{root: root, open: open, full: true}, published)
	}
}

// target is what is to be checked: a repository with the open documents of all.
type target struct {
	root string
	open open
	full bool // also what takes long
}

// look checks a repository and publishes what it finds, as often as that is more. It reports whether
// something is left that takes long.
func (s *server) look(ctx context.Context, t target, published map[string]shown) (left bool) {
	r, err := s.read(t)
	if err == nil {
		before := published[t.root]
		sent := shown{} // in this check
		left, err = s.cfg.Check(ctx, r, func(all []schema.Diagnostic) {
			if ctx.Err() != nil {
				return
			}
			before = s.publish(byFile(r, all), before, sent)
			if published[t.root] = before; len(before) == 0 {
				delete(published, t.root)
			}
		})
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(s.cfg.Log, "muster: check %s: %v\n", t.root, err)
	}
	return left && err == nil
}

// read reads a repository, with the text of open documents in the place of files.
func (s *server) read(t target) (Repository, error) {
	tree, err := s.cfg.Read(t.root)
	r := Repository{Dir: t.root, Tree: tree, Full: t.full}
	if err != nil {
		return r, err
	}
	for name, text := range t.open.text {
		rel, err := filepath.Rel(t.root, name)
		rel = filepath.ToSlash(rel)
		_, there := tree.Files[rel]
		if err != nil || !filepath.IsLocal(rel) || rootOf(name) != t.root || !there && !strings.HasSuffix(rel, ".cue") {
			continue
		}
		sum := sha256.Sum256(text)
		tree.Files[rel] = schema.File{Hash: "sha256:" + hex.EncodeToString(sum[:]), Data: text}
	}
	for name := range t.open.edited { // also what was closed, or is not there any more
		if rel, err := filepath.Rel(t.root, name); err == nil && filepath.IsLocal(rel) && rootOf(name) == t.root {
			r.Edited = append(r.Edited, path.Dir(filepath.ToSlash(rel)))
		}
	}
	slices.Sort(r.Edited)
	r.Edited = slices.Compact(r.Edited)
	return r, nil
}

// byFile returns the mistakes of a repository by file, as the protocol has them.
func byFile(r Repository, all []schema.Diagnostic) map[string][]diagnostic {
	found := map[string][]diagnostic{}
	for _, d := range all {
		if d.Path == "" {
			d.Path = "cue.mod/module.cue"
		}
		severity := severityError
		switch {
		case d.Rule == schema.RulePending:
			severity = severityInformation
		case d.Severity == schema.Warning:
			severity = severityWarning
		}
		name := filepath.Join(r.Dir, filepath.FromSlash(d.Path))
		shown := diagnostic{
			Range: word(r.Tree.Files[d.Path].Data, d.Line, d.Column), Severity: severity, Code: d.Rule, Source: "muster", Message: text(d),
		}
		if d.Rule == schema.RuleDeprecated {
			shown.Tags = []int{deprecated}
		}
		found[name] = append(found[name], shown)
	}
	return found
}

// text returns a mistake in words, without its place.
func text(d schema.Diagnostic) string {
	d.Position = schema.Position{}
	if d.Hint == "" {
		return d.Error()
	}
	return schema.WithHint(d.Error(), d.Hint)
}

// publish sends the mistakes of a repository, and of files that had some before that they have
// none any more; what sent has already is not sent again. It returns what is published now.
func (s *server) publish(found map[string][]diagnostic, before, sent shown) shown {
	now := shown{}
	send := func(name string, ds []diagnostic) {
		params, err := json.Marshal(map[string]any{"uri": uriOf(name), "diagnostics": ds})
		if err != nil {
			fmt.Fprintf(s.cfg.Log, "muster: mistakes in %s: %v\n", name, err)
			return
		}
		if len(ds) > 0 {
			now[name] = string(params)
		}
		if sent[name] != string(params) {
			sent[name] = string(params)
			_ = s.editor.send(map[string]any{"method": "textDocument/publishDiagnostics", "params": json.RawMessage(params)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		send(name, found[name])
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if len(found[name]) == 0 {
			send(name, []diagnostic{})
		}
	}
	return now
}
