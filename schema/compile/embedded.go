package compile

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/inject/embed"
	"cuelang.org/go/encoding/yaml"

	"github.com/musterhq/muster/schema"
)

// embeds finds the files that a package embeds.
type embeds struct {
	inst  *build.Instance   // the package
	files map[string][]byte // all that there are, by path
	known map[string]string // paths by name: thousands of objects may be of one file
	by    map[string]string // directories of what embeds them, by path
	any   map[string]bool   // whether a directory embeds any
}

// relocate gives positions in embedded files, which CUE names from the directory of the
// file that embeds them, the whole path.
func (e *embeds) relocate(resp *response) {
	fix := func(p *schema.Position) { p.Path = e.whole(p.Path) }
	for i := range resp.Diagnostics {
		fix(&resp.Diagnostics[i].Position)
	}
	for i := range resp.Objects {
		fix(&resp.Objects[i].Origin)
		for j := range resp.Objects[i].Names {
			fix(&resp.Objects[i].Names[j])
		}
		for field, at := range resp.Objects[i].Places {
			fix(&at)
			resp.Objects[i].Places[field] = at
		}
	}
	for i := range resp.Sources {
		for j := range resp.Sources[i].Places {
			fix(&resp.Sources[i].Places[j].Position)
		}
	}
}

func newEmbeds(inst *build.Instance, files map[string][]byte) *embeds {
	return &embeds{inst: inst, files: files, known: map[string]string{}, by: map[string]string{}, any: map[string]bool{}}
}

// whole returns the path of a file by the name that its position has.
func (e *embeds) whole(name string) string {
	if name == "" || strings.HasSuffix(name, ".cue") {
		return name
	}
	full, ok := e.known[name]
	if !ok {
		full = e.find(name)
		e.known[name] = full
	}
	return full
}

// embeds reports whether the files of a directory embed the file that positions name so.
func (e *embeds) embeds(dir, name string) bool {
	by, ok := e.by[e.whole(name)]
	return ok && by == dir
}

// some reports whether the files of a directory embed any.
func (e *embeds) some(dir string) bool {
	yes, known := e.any[dir]
	if !known {
		for full := range e.files {
			_, is := e.of(dir, full)
			yes = yes || is
		}
		e.any[dir] = yes
	}
	return yes
}

// of returns the name that positions in a file have, if the files of a directory embed it.
func (e *embeds) of(dir, full string) (string, bool) {
	if strings.HasSuffix(full, ".cue") || !below(full, dir) {
		return "", false
	}
	name := strings.TrimPrefix(strings.TrimPrefix(full, dir), "/")
	return name, e.embeds(dir, name)
}

// parsed returns the files of YAML and JSON that those of a directory embed.
func (e *embeds) parsed(dir string) (out []*ast.File) {
	for _, full := range slices.Sorted(maps.Keys(e.files)) {
		if ext := path.Ext(full); !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			continue
		}
		name, ok := e.of(dir, full)
		if !ok {
			continue
		}
		if f, err := yaml.Extract(name, e.files[full]); err == nil { // JSON is YAML
			out = append(out, f)
		}
	}
	return out
}

// find returns the path of an embedded file: name itself if files of several directories
// embed one of that name, since none of these is more likely.
func (e *embeds) find(name string) string {
	found := ""
	for _, f := range allFiles(e.inst) {
		dir := path.Dir(strings.TrimPrefix(f.Filename, "/"))
		full := path.Join(dir, name)
		if full == found || e.files[full] == nil {
			continue
		}
		attributes, _ := embed.EmbeddedPaths(path.Join(dir, path.Base(f.Filename)), f) // what is wrong there is reported elsewhere
		for _, at := range attributes {
			if !at.Matches(full) {
				continue
			}
			if found != "" {
				return name
			}
			found, e.by[full] = full, dir
			break
		}
	}
	return cmp.Or(found, name)
}

// allFiles returns the files of a package and of all that it imports.
func allFiles(in *build.Instance) (files []*ast.File) {
	for _, in := range instances(in) {
		files = append(files, in.Files...)
	}
	return files
}

// instanceOf returns the package that a file is of, among a package and all that it imports;
// nil if it is none of these.
func instanceOf(in *build.Instance, f *ast.File) *build.Instance {
	all := instances(in)
	i := slices.IndexFunc(all, func(in *build.Instance) bool { return slices.Contains(in.Files, f) })
	if i < 0 {
		return nil
	}
	return all[i]
}

// instances returns a package and all that it imports.
func instances(in *build.Instance) (all []*build.Instance) {
	seen := map[*build.Instance]bool{}
	var visit func(*build.Instance)
	visit = func(in *build.Instance) {
		if seen[in] {
			return
		}
		seen[in] = true
		all = append(all, in)
		for _, imp := range in.Imports {
			visit(imp)
		}
	}
	visit(in)
	return all
}

// embeddedAt reports whether the attribute at a position embeds a file.
func (e *embeds) embeddedAt(name string, at schema.Position) bool {
	for _, f := range allFiles(e.inst) {
		if strings.TrimPrefix(f.Filename, "/") != at.Path {
			continue
		}
		attributes, _ := embed.EmbeddedPaths(at.Path, f) // as in find
		for _, a := range attributes {
			if a.Matches(name) && position(a.Attribute.Pos) == at {
				return true
			}
		}
	}
	return false
}

const (
	// maxSearched is how large a file of YAML is, in bytes, that is parsed again for the line of a mistake.
	maxSearched = 64 << 10
	// openLines is how many lines a list in brackets, or a text in quotes, may have, and mostSearches how
	// many of them there may be, for a mistake below to be found.
	openLines, mostSearches = 40, 10
)

// wrongLine returns the first line of a file of YAML, counted from 1, up to which it is none; 0 if that is not
// found. What is open at the end of a line, as a list in brackets is, makes it none only
// up to where it is closed.
func wrongLine(data []byte) int {
	if len(data) > maxSearched {
		return 0
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	wrong := func(n int) bool {
		_, err := yaml.Extract("", bytes.Join(lines[:n], nil))
		return err != nil
	}
	right := 0 // so many lines are YAML
	for n := 0; n < mostSearches && right < len(lines); n++ {
		first := right + 1 + sort.Search(len(lines)-right-1, func(n int) bool { return wrong(right + 1 + n) })
		closed := first + 1
		for closed <= min(first+openLines, len(lines)) && wrong(closed) {
			closed++
		}
		if closed > min(first+openLines, len(lines)) {
			return first
		}
		right = closed
	}
	return 0
}

// yamlWords are what the parser of YAML says, in words that name what to look at.
var yamlWords = map[string]string{
	"mapping values are not allowed in this context":         "no key can be here: look at the indentation, and put text with a colon in quotes",
	"did not find expected key":                              "a key is expected here: look at the indentation, quotes and brackets",
	"did not find expected '-' indicator":                    "an element, which begins with -, is expected here: look at the indentation",
	"block sequence entries are not allowed in this context": "no element of a list can be here: look at the indentation",
	"could not find expected ':'":                            "a key has no colon, or a text is indented too little",
	"found character that cannot start any token":            "a value begins with a tab, or with one of @ ` %: indent with spaces, put text in quotes",
}
