package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/valid"
)

// CUE keeps all that it evaluates, and of a package with thousands of jobs that is more
// than a gigabyte, most of the time is spent on collecting garbage between it, and all of
// it is forgotten once the data is there. Where no job of a package can say anything of
// another one, the package is therefore evaluated in parts: each is the package with some
// of its jobs, and the others are blank in its files, so that what stays has its position.

const (
	// partJobs is how many jobs a part has: what the libraries cost is little beside them, and
	// what they take seldom reaches heapFloor.
	partJobs = 200
	// leastJobs and leastBytes are how many written jobs, and how many bytes of its own files,
	// a package has at the least that is evaluated in parts.
	leastJobs, leastBytes = 2 * partJobs, 64 << 10
	// maxBadParts is how many parts with mistakes are looked at: each takes several times
	// as long as one without.
	maxBadParts = 4
)

// jobsField is the field of jobs.
const jobsField = "job"

// evaluate compiles one package, in parts if it can. It uses nothing but the request, and
// cannot be interrupted: whoever calls it must be able to die.
func evaluate(req request) response {
	if found := unrepresentable(req, packageFiles); len(found) > 0 && req.Ask == nil {
		return response{Diagnostics: found[:min(len(found), maxNumbers)]}
	}
	if resp, ok := inParts(req); ok {
		return resp
	}
	return whole(req, uncovered)
}

// whole compiles one package at once. also adds to the mistakes of a package those that they hide.
func whole(req request, also func(request, *loaded, []mistake) []mistake) (resp response) {
	defer func() {
		if p := recover(); p != nil {
			d := firstOf(ownFiles(req)[0], schema.RuleInternal, fmt.Sprintf("the CUE evaluator failed on this package: %v", p))
			d.Hint = "this is a bug in the evaluator; undo or simplify the last change"
			resp = response{Diagnostics: []schema.Diagnostic{d}}
			if found := inWordsOfCUE(req); also != nil && len(found) > 0 { // what a trial fails on proves nothing
				resp.Diagnostics = found
			}
		}
	}()
	strict := loadPackage(req, req.Dir, nil)
	defer func() {
		newEmbeds(strict.inst, req.Files).relocate(&resp)
		conceal(&resp)
	}()
	if req.Ask != nil {
		return answer(req, strict)
	}
	resp = objects(req, strict, also)
	if also != nil && req.Test == "" {
		resp.Diagnostics = toRows(req, strict, resp.Diagnostics, func(of request) []schema.Diagnostic { return whole(of, nil).Diagnostics })
	}
	if req.Test != "" {
		resp = judge(req, strict, resp)
	}
	return resp
}

// inWordsOfCUE returns the errors that CUE finds in a package, without looking for what these come from; none if it fails on
// the package itself.
func inWordsOfCUE(req request) (found []schema.Diagnostic) {
	defer func() {
		if recover() != nil {
			found = nil
		}
	}()
	l := loadPackage(req, req.Dir, nil)
	return tidy(diagnose(l, l.errs))
}

// conceal leaves out secrets that messages and texts quote: they are printed, stored and shown to others.
func conceal(resp *response) {
	for i := range resp.Diagnostics {
		d := &resp.Diagnostics[i]
		d.Message, d.Expected, d.Hint = valid.Concealed(d.Message), valid.Concealed(d.Expected), valid.Concealed(d.Hint)
	}
	for i := range resp.Sources {
		s := &resp.Sources[i]
		s.Value, s.Error = valid.Concealed(s.Value), valid.Concealed(s.Error)
		for j := range s.Places {
			s.Places[j].Text = valid.Concealed(s.Places[j].Text)
		}
	}
}

// inParts evaluates a package in parts if it has more than one, and reports whether it does.
func inParts(req request) (out response, ok bool) {
	s := split(req)
	if s == nil {
		return response{}, false
	}
	if len(s.names) > req.Limits.Objects {
		return response{Diagnostics: []schema.Diagnostic{tooMany(req, len(s.names))}}, true
	}
	if req.Ask != nil {
		n := max(0, slices.Index(s.names, req.Ask.Name)) / partJobs
		return whole(s.part(n), uncovered), true
	}
	m := merger{req: req, seen: map[schema.ObjectKey]bool{}}
	for n := 0; n*partJobs < len(s.names) && !m.full(); n++ {
		m.add(whole(s.part(n), uncovered))
	}
	return m.response(), true
}

// merger puts the answers of parts together.
type merger struct {
	req   request
	out   response
	seen  map[schema.ObjectKey]bool // what is not a job is in all parts
	parts int
	bad   int // parts with mistakes
	bytes int // of data
}

// full reports whether what further parts say changes nothing.
func (m *merger) full() bool {
	return m.bad >= maxBadParts || m.bytes > m.req.Limits.OutputBytes || len(m.out.Objects) > m.req.Limits.Objects
}

func (m *merger) add(part response) {
	if m.parts++; m.parts == 1 {
		m.out.Policies, m.out.PolicyPaths = part.Policies, part.PolicyPaths
	}
	m.out.Diagnostics = append(m.out.Diagnostics, part.Diagnostics...)
	if slices.ContainsFunc(part.Diagnostics, isError) {
		m.bad++
	}
	for i := range part.Objects {
		key := schema.ObjectKey{Kind: part.Objects[i].Kind, Name: part.Objects[i].Name}
		if m.seen[key] {
			continue
		}
		m.seen[key] = true
		m.bytes += len(part.Objects[i].Data)
		m.out.Objects = append(m.out.Objects, part.Objects[i])
	}
}

// response returns the answer of the package.
func (m *merger) response() response {
	switch own := ownFiles(m.req)[0]; {
	case m.bad > 0:
	case m.bytes > m.req.Limits.OutputBytes:
		m.out.Diagnostics = append(m.out.Diagnostics, firstOf(own, schema.RuleLimit, (&exporter{left: -1}).trouble(m.req.Limits.OutputBytes)))
	case len(m.out.Objects) > m.req.Limits.Objects:
		m.out.Diagnostics = append(m.out.Diagnostics, tooMany(m.req, len(m.out.Objects)))
	}
	found := make([]mistake, len(m.out.Diagnostics))
	for i, d := range m.out.Diagnostics {
		found[i].Diagnostic = d
	}
	m.out.Diagnostics = tidy(found)
	if slices.ContainsFunc(m.out.Diagnostics, isError) {
		m.out.Objects = nil
	}
	return m.out
}

// splitting is a package whose written jobs can be evaluated apart.
type splitting struct {
	req   request
	files []*splitFile
	names []string       // of the jobs, in the order in which they are written first
	index map[string]int // of these
}

// splitFile is a file of such a package.
type splitFile struct {
	name    string
	data    []byte
	jobs    []written
	imports []written         // by the name that they are used by
	others  map[string]bool   // identifiers of all but the jobs
	used    []map[string]bool // those of each of jobs
	alone   bool              // there are only jobs, and what these import
}

// written is what stands somewhere in a file.
type written struct {
	name     string
	from, to int // bytes
}

// split returns how a package is evaluated in parts, nil if it is not.
func split(req request) *splitting {
	own := filesOf(req.Files, req.Dir)
	size := 0
	for _, name := range own {
		size += len(req.Files[name])
	}
	if size < leastBytes || req.Parent != "" || req.Test != "" || req.Ask != nil && req.Ask.Kind != jobsField {
		return nil
	}
	s := &splitting{req: req, index: map[string]int{}}
	for _, name := range own {
		f := readSplit(name, req.Files[name])
		if f == nil {
			return nil
		}
		s.files = append(s.files, f)
		for _, j := range f.jobs {
			if _, ok := s.index[j.name]; !ok {
				s.index[j.name] = len(s.names)
				s.names = append(s.names, j.name)
			}
		}
	}
	if len(s.names) < leastJobs {
		return nil
	}
	return s
}

// part returns the request for a part.
func (s *splitting) part(n int) request {
	req := s.req
	req.Files = maps.Clone(req.Files)
	for _, f := range s.files {
		if data := f.keep(func(job string) bool { return s.index[job]/partJobs == n }); data != nil {
			req.Files[f.name] = data
		} else {
			delete(req.Files, f.name)
		}
	}
	return req
}

// readSplit returns a file, nil if its jobs cannot be separated.
func readSplit(name string, data []byte) *splitFile {
	file, err := parser.ParseFile(name, data)
	if err != nil {
		return nil
	}
	f := &splitFile{name: name, data: data, others: map[string]bool{}, alone: true}
	for _, d := range file.Decls {
		if !f.decl(d) {
			return nil
		}
	}
	if f.others[jobsField] || f.others["self"] || slices.ContainsFunc(f.used, func(used map[string]bool) bool { return used[jobsField] || used["self"] }) {
		return nil // a job may look at others
	}
	return f
}

// decl reads a declaration and reports whether the package may be split for it.
func (f *splitFile) decl(d ast.Decl) bool {
	switch d := d.(type) {
	case *ast.Package, *ast.CommentGroup:
		return true
	case *ast.ImportDecl:
		return f.imported(d)
	case *ast.Attribute:
		f.alone = false
		key, _ := d.Split()
		return key == "extern"
	case *ast.LetClause:
		f.alone = false
		identifiersOf(d, f.others)
		return true
	case *ast.Field:
		if !named(d) {
			return false
		}
		if lax.Label(d) == jobsField {
			return f.jobsOf(d)
		}
		f.alone = false
		identifiersOf(d, f.others)
		return true
	}
	return false
}

// named reports whether the label of a field is a name, which nothing else in it is another
// name of.
func named(d *ast.Field) bool {
	switch label := d.Label.(type) {
	case *ast.Ident:
	case *ast.BasicLit:
		if label.Kind != token.STRING {
			return false
		}
	default:
		return false
	}
	return d.Alias == nil
}

// imported notes imports.
func (f *splitFile) imported(d *ast.ImportDecl) bool {
	for _, spec := range d.Specs {
		of, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return false
		}
		name := ast.ParseImportPath(of).Qualifier
		if spec.Name != nil {
			name = spec.Name.Name
		}
		w := written{name: name, from: spec.Pos().Offset(), to: spec.End().Offset()}
		if !d.Lparen.IsValid() {
			w.from = d.Pos().Offset()
		}
		f.imports = append(f.imports, w)
	}
	return true
}

// jobsOf notes the jobs of a field.
func (f *splitFile) jobsOf(d *ast.Field) bool {
	body, ok := d.Value.(*ast.StructLit)
	if !ok || d.Constraint != token.ILLEGAL || len(d.Attrs) > 0 {
		return false
	}
	labels, first := map[string]bool{}, len(f.used)
	for _, e := range body.Elts {
		field, ok := e.(*ast.Field)
		if !ok {
			return false
		}
		if _, pattern := field.Label.(*ast.ListLit); pattern { // it holds for the jobs of each part
			f.alone = false
			identifiersOf(field, f.others)
			continue
		}
		if !named(field) || field.Constraint != token.ILLEGAL {
			return false
		}
		used := map[string]bool{}
		identifiersOf(field, used)
		w := written{name: lax.Label(field), from: field.Pos().Offset(), to: field.End().Offset()}
		if len(body.Elts) == 1 {
			w.from, w.to = d.Pos().Offset(), d.End().Offset()
		}
		labels[w.name] = true
		f.jobs, f.used = append(f.jobs, w), append(f.used, used)
	}
	return len(body.Elts) == 1 || !slices.ContainsFunc(f.used[first:], func(used map[string]bool) bool {
		for name := range used {
			if labels[name] {
				return true // one job refers to another beside it
			}
		}
		return false
	})
}

// identifiersOf adds the identifiers in a node that are no labels and no selectors.
func identifiersOf(n ast.Node, to map[string]bool) {
	labels := map[*ast.Ident]bool{}
	ast.Walk(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if id, ok := n.Label.(*ast.Ident); ok {
				labels[id] = true
			}
		case *ast.SelectorExpr:
			if id, ok := n.Sel.(*ast.Ident); ok {
				labels[id] = true
			}
		case *ast.Ident:
			if !labels[n] {
				to[n.Name] = true
			}
		}
		return true
	}, nil)
}

// keep returns the file with some of its jobs, nil if it has nothing to say without the
// others.
func (f *splitFile) keep(job func(name string) bool) []byte {
	var cut []written
	kept, lost := maps.Clone(f.others), map[string]bool{}
	for i, w := range f.jobs {
		if job(w.name) {
			maps.Copy(kept, f.used[i])
			continue
		}
		maps.Copy(lost, f.used[i])
		cut = append(cut, w)
	}
	if f.alone && len(f.jobs) > 0 && len(cut) == len(f.jobs) {
		return nil
	}
	return f.without(cut, kept, lost)
}

// without returns the file without some of it, and without the imports that nothing else uses: see withImports.
func (f *splitFile) without(cut []written, kept, lost map[string]bool) []byte {
	return blank(f.data, f.withImports(cut, kept, lost))
}

// withImports adds the imports that nothing else uses to what goes of a file, in the order of the file: kept are the
// identifiers of what stays, and lost those of what goes.
func (f *splitFile) withImports(cut []written, kept, lost map[string]bool) []written {
	for _, w := range f.imports {
		if lost[w.name] && !kept[w.name] {
			cut = append(cut, w)
		}
	}
	slices.SortFunc(cut, func(a, b written) int { return cmp.Compare(a.from, b.from) })
	return cut
}

// blank returns a text without some of it: what stays has its lines and columns.
func blank(text []byte, cut []written) []byte {
	out := make([]byte, 0, len(text))
	at := 0
	for _, w := range cut {
		out = append(out, text[at:w.from]...)
		gone := text[w.from:w.to]
		lines := bytes.Count(gone, []byte("\n"))
		out = append(out, bytes.Repeat([]byte("\n"), lines)...)
		out = append(out, bytes.Repeat([]byte(" "), len(gone)-1-bytes.LastIndexByte(gone, '\n'))...)
		at = w.to
		if rest := bytes.TrimLeft(text[at:], " \t"); len(rest) > 0 && rest[0] == ',' {
			comma := len(text) - len(rest)
			out = append(out, bytes.Repeat([]byte(" "), comma+1-at)...)
			at = comma + 1
		}
	}
	return append(out, text[at:]...)
}
