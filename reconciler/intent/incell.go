package intent

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// CellsIn returns the names of the cells that objects are for, sorted: those that are
// declared, or, where none is, those that jobs and alloc sets name.
func CellsIn(all ...schema.Objects) []string {
	declared, named := map[string]bool{}, map[string]bool{}
	for _, o := range all {
		for i := range o.Cells {
			declared[o.Cells[i].Name] = true
		}
		for i := range o.Jobs {
			named[o.Jobs[i].Cell] = true
		}
		for i := range o.AllocSets {
			named[o.AllocSets[i].Cell] = true
		}
	}
	if len(declared) > 0 {
		return slices.Sorted(maps.Keys(declared))
	}
	return slices.Sorted(maps.Keys(named))
}

// InCell returns what of a compiled commit is for a cell: its objects, and what holds in all
// cells, which are tenants, priorities and packages that do not compile. An object for a cell
// that is none of cells, which are sorted, stays: it is not known which one it is meant for.
// c is not changed.
func InCell(c schema.Compiled, cell string, cells []string) schema.Compiled {
	other := func(key schema.ObjectKey, value any) bool {
		of := cellOf(key, value)
		_, known := slices.BinarySearch(cells, of)
		return of != cell && known
	}
	c.Packages = slices.Clone(c.Packages)
	for i := range c.Packages {
		if c.Packages[i].Package != nil {
			c.Packages[i] = packageIn(c.Packages[i], other)
		}
	}
	return c
}

// packageIn returns a package without what is of another cell.
func packageIn(c schema.CompiledPackage, other func(schema.ObjectKey, any) bool) schema.CompiledPackage {
	p := *c.Package
	left, stay := map[schema.ObjectKey]bool{}, map[string]bool{}
	p.Objects = p.Objects.Where(func(key schema.ObjectKey, value any) bool {
		if other(key, value) {
			left[key] = true
			return false
		}
		stay[key.Field()] = true
		return true
	})
	if len(left) == 0 {
		return c
	}
	p.References = slices.DeleteFunc(slices.Clone(p.References), func(r schema.Reference) bool { return left[r.From] })
	p.Origins = maps.Clone(p.Origins)
	maps.DeleteFunc(p.Origins, func(key schema.ObjectKey, _ schema.Position) bool { return left[key] })
	c.Diagnostics = slices.DeleteFunc(slices.Clone(c.Diagnostics), func(d schema.Diagnostic) bool {
		for key := range left {
			rest, of := strings.CutPrefix(d.Field, key.Field())
			if of && !stay[key.Field()] && (rest == "" || rest[0] == '.') {
				return true
			}
		}
		return false
	})
	c.Package = &p
	return c
}
