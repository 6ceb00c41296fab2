package rules

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// What a package outside of cmd may be without a reason: more is a room in which a
// reader has to know everything to change anything.
const (
	// mostCircle is how many of its files may need each other in a circle.
	mostCircle = 12
	// mostFields is how many fields its largest struct may have.
	mostFields = 26
	// mostSpread is how many of its files may have methods of one type.
	mostSpread = 5
)

// room is how large a package is in these ways.
type room struct {
	circle int    // files of the largest circle
	fields int    // of the largest struct,
	large  string // which is this
	spread int    // files with methods of the type
	wide   string // that is spread most
}

// largeRoom is a package that is larger, with the reason. What it has less of than is
// said here is a fault, too: the list only shrinks.
type largeRoom struct {
	dir    string
	most   room
	reason string
}

var largeRooms = []largeRoom{
	{
		"placement",
		room{circle: 17, spread: 19},
		"one object for speed: a decision reads and changes the snapshot's caches of scores and classes with each step",
	},
	{
		"reconciler/git",
		room{spread: 10},
		"Repo is one remote and its local copy, whose lock all that reads or fetches holds",
	},
	{
		"reconciler/web",
		room{spread: 11},
		"Server has one handler for each path, in the file of what it serves",
	},
	{
		"schema/valid",
		room{circle: 13, spread: 9},
		"check walks an object, one file for each kind: jobs hold tasks, and tasks hold all else",
	},
}

// roomOf measures a package. Generated files and tests are left out.
func roomOf(p *packages.Package) room {
	r := room{}
	needs := map[string]map[string]bool{}
	methods := map[string]map[string]bool{}
	file := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	for _, f := range p.Syntax {
		if ast.IsGenerated(f) {
			continue
		}
		name := file(f.Pos())
		needs[name] = map[string]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if o := p.TypesInfo.Uses[n]; o != nil && o.Pkg() == p.Types {
					needs[name][file(o.Pos())] = true
				}
			case *ast.TypeSpec:
				if s, ok := p.TypesInfo.Defs[n.Name].Type().Underlying().(*types.Struct); ok && s.NumFields() > r.fields {
					r.fields, r.large = s.NumFields(), n.Name.Name
				}
			case *ast.FuncDecl:
				if t := receiver(p.TypesInfo.Defs[n.Name]); t != "" {
					if methods[t] == nil {
						methods[t] = map[string]bool{}
					}
					methods[t][name] = true
				}
			}
			return true
		})
	}
	for _, t := range slices.Sorted(maps.Keys(methods)) {
		if len(methods[t]) > r.spread {
			r.spread, r.wide = len(methods[t]), t
		}
	}
	r.circle = largestCircle(needs)
	return r
}

// receiver returns the name of the type that a method is of, "" of a function.
func receiver(o types.Object) string {
	fn, ok := o.(*types.Func)
	if !ok || fn.Signature().Recv() == nil {
		return ""
	}
	t := fn.Signature().Recv().Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// largestCircle returns how many nodes the largest set has in which each needs each
// other, by way of others or not.
func largestCircle(needs map[string]map[string]bool) int {
	reaches := map[string]map[string]bool{}
	for from := range needs {
		seen, left := map[string]bool{}, []string{from}
		for len(left) > 0 {
			at := left[len(left)-1]
			left = left[:len(left)-1]
			for to := range needs[at] {
				if !seen[to] && needs[to] != nil {
					seen[to] = true
					left = append(left, to)
				}
			}
		}
		reaches[from] = seen
	}
	most := 1
	for from := range needs {
		n := 1
		for to := range reaches[from] {
			if to != from && reaches[to][from] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// checkRooms holds what was measured against the limits, and the list of what is larger.
func checkRooms(rooms map[string]room, larger []largeRoom) []fault {
	var out []fault
	listed := map[string]bool{}
	for _, l := range larger {
		listed[l.dir] = true
		is, ok := rooms[l.dir]
		if !ok {
			out = append(out, fault{l.dir, "is in the list of large packages, and is not there"})
			continue
		}
		limits := room{circle: max(mostCircle, l.most.circle), fields: max(mostFields, l.most.fields), spread: max(mostSpread, l.most.spread)}
		out = append(out, faultsOf(l.dir, is, limits)...)
		for what, n := range map[string][2]int{
			"circle": {is.circle, l.most.circle}, "fields": {is.fields, l.most.fields}, "spread": {is.spread, l.most.spread},
		} {
			if n[0] < n[1] {
				out = append(out, fault{l.dir, fmt.Sprintf("%s is %d now: the list of large packages says %d, and only shrinks", what, n[0], n[1])})
			}
		}
	}
	for dir, is := range rooms {
		if !listed[dir] {
			out = append(out, faultsOf(dir, is, room{circle: mostCircle, fields: mostFields, spread: mostSpread})...)
		}
	}
	return out
}

func faultsOf(dir string, is, most room) []fault {
	var out []fault
	if is.circle > most.circle {
		out = append(out, fault{dir, fmt.Sprintf("%d files need each other in a circle, at most %d may: make a package of those that the others only read", is.circle, most.circle)})
	}
	if is.fields > most.fields {
		out = append(out, fault{dir, fmt.Sprintf("struct %s has %d fields, at most %d may it have: it is several things", is.large, is.fields, most.fields)})
	}
	if is.spread > most.spread {
		out = append(out, fault{dir, fmt.Sprintf("type %s has methods in %d files, at most %d may have them: give some to a type of their own", is.wide, is.spread, most.spread)})
	}
	return out
}

// TestLargestCircle: what is only read is in no circle.
func TestLargestCircle(t *testing.T) {
	t.Parallel()
	needs := func(pairs ...string) map[string]map[string]bool {
		out := map[string]map[string]bool{}
		for _, p := range pairs {
			for _, n := range strings.Split(p, " ") {
				if out[n] == nil {
					out[n] = map[string]bool{}
				}
			}
			from, to, _ := strings.Cut(p, " ")
			out[from][to] = true
		}
		return out
	}
	for _, tt := range []struct {
		needs map[string]map[string]bool
		want  int
	}{
		{needs("a b", "b c"), 1},
		{needs("a b", "b c", "c a", "c d"), 3},
		{needs("a b", "b a", "c d", "d e", "e c", "b c"), 3},
		{needs("a a"), 1},
	} {
		if got := largestCircle(tt.needs); got != tt.want {
			t.Errorf("%v: a circle of %d, want %d", tt.needs, got, tt.want)
		}
	}
}

// TestRoomsPlanted: each limit is held, a listed package may be as large as is said, and
// what has become smaller, or is gone, is reported.
func TestRoomsPlanted(t *testing.T) {
	t.Parallel()
	small := room{circle: mostCircle, fields: mostFields, spread: mostSpread}
	for _, tt := range []struct {
		is   room
		list []largeRoom
		want string // "" for none
	}{
		{small, nil, ""},
		{room{circle: mostCircle + 1}, nil, "files need each other in a circle"},
		{room{fields: mostFields + 1, large: "T"}, nil, "struct T has"},
		{room{spread: mostSpread + 1, wide: "T"}, nil, "type T has methods in"},
		{room{circle: 20}, []largeRoom{{"a", room{circle: 20}, ""}}, ""},
		{room{circle: 21}, []largeRoom{{"a", room{circle: 20}, ""}}, "at most 20 may"},
		{room{circle: 19}, []largeRoom{{"a", room{circle: 20}, ""}}, "circle is 19 now"},
		{small, []largeRoom{{"b", room{circle: 20}, ""}}, "is not there"},
	} {
		faults := strings.Join(sorted(checkRooms(map[string]room{"a": tt.is}, tt.list)), "\n")
		if (tt.want == "") != (faults == "") || !strings.Contains(faults, tt.want) {
			t.Errorf("%+v with %v: %q, want %q", tt.is, tt.list, faults, tt.want)
		}
	}
}

// TestRooms measures the packages outside of cmd.
func TestRooms(t *testing.T) {
	t.Parallel()
	cfg := &packages.Config{
		Context: t.Context(), Dir: root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports,
	}
	list, err := packages.Load(cfg, "./schema/...", "./placement/...", "./reconciler/...", "./nodeagent/...")
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string]room{}
	for _, p := range list {
		if len(p.Errors) > 0 {
			t.Fatalf("%s: %v", p.PkgPath, p.Errors)
		}
		rooms[strings.TrimPrefix(p.PkgPath, module+"/")] = roomOf(p)
	}
	if len(rooms) < 20 {
		t.Fatalf("there are %d packages, want 20 at least", len(rooms))
	}
	for _, dir := range slices.Sorted(maps.Keys(rooms)) {
		r := rooms[dir]
		t.Logf("%s: circle of %d files; %s has %d fields; %s has methods in %d files", dir, r.circle, cmp.Or(r.large, "nothing"), r.fields, cmp.Or(r.wide, "nothing"), r.spread)
	}
	for _, f := range sorted(checkRooms(rooms, largeRooms)) {
		t.Error(f)
	}
}
