package device

import (
	"slices"
	"testing"
)

func TestPick(t *testing.T) {
	t.Parallel()
	const gpu, disk, old, new = 1, 2, 10, 11
	machine := []Device{{gpu, old, Whole, 0}, {gpu, new, 400, 0}, {gpu, new, Whole, 0}, {disk, old, Whole, 0}, {gpu, old, 300, 0}}
	for name, c := range map[string]struct {
		needs []Need
		want  []Use
		ok    bool
	}{
		"the first whole ones":         {[]Need{{Kind: gpu, Count: 2, Milli: Whole}}, []Use{{0, Whole}, {2, Whole}}, true},
		"of a model":                   {[]Need{{Kind: gpu, Models: []int16{new}, Count: 1, Milli: Whole}}, []Use{{2, Whole}}, true},
		"too few":                      {[]Need{{Kind: gpu, Count: 3, Milli: Whole}}, []Use{{0, Whole}, {2, Whole}}, false},
		"a share where least is left":  {[]Need{{Kind: gpu, Count: 1, Milli: 200}}, []Use{{4, 200}}, true},
		"a share that needs more":      {[]Need{{Kind: gpu, Count: 1, Milli: 350}}, []Use{{1, 350}}, true},
		"a share of a model":           {[]Need{{Kind: gpu, Models: []int16{new}, Count: 1, Milli: 500}}, []Use{{2, 500}}, true},
		"none of the kind":             {[]Need{{Kind: 3, Count: 1, Milli: 1}}, nil, false},
		"not what was chosen before":   {[]Need{{Kind: gpu, Count: 1, Milli: Whole}, {Kind: gpu, Models: []int16{old}, Count: 1, Milli: Whole}}, []Use{{0, Whole}}, false},
		"the rest of what was chosen":  {[]Need{{Kind: gpu, Count: 1, Milli: 200}, {Kind: gpu, Count: 1, Milli: 100}}, []Use{{4, 200}, {4, 100}}, true},
		"two kinds":                    {[]Need{{Kind: gpu, Count: 1, Milli: Whole}, {Kind: disk, Count: 1, Milli: Whole}}, []Use{{0, Whole}, {3, Whole}}, true},
		"several models, in any order": {[]Need{{Kind: gpu, Models: []int16{old, new}, Count: 2, Milli: Whole}}, []Use{{0, Whole}, {2, Whole}}, true},
	} {
		got, ok := Pick(machine, c.needs, nil)
		if ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %t, want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
	if needs := []Need{{Kind: gpu, Models: []int16{old}, Count: 2, Milli: Whole}}; !Exist(machine, needs) {
		t.Error("a device of which a share is taken counts as not there")
	}
	if needs := []Need{{Kind: disk, Count: 2, Milli: Whole}}; Exist(machine, needs) {
		t.Error("there is one disk only")
	}
}

func TestGive(t *testing.T) {
	t.Parallel()
	list := []Device{{1, 1, 100, 0}, {1, 1, 0, 0}}
	Give(list, []Use{{0, 200}, {1, 300}, {2, 400}}) // the last is one of a machine that had more
	if list[0].Free != 300 || list[1].Free != 300 {
		t.Errorf("free are %d and %d, want 300 each", list[0].Free, list[1].Free)
	}
}

// TestNear: several devices are near each other where that can be had, and where it must be
// nothing else is taken.
func TestNear(t *testing.T) {
	t.Parallel()
	// The attributes 1 to 4 are of the link and node 1 1, 1 2, 2 2 and, without a link, 2.
	link := func(d Device) int32 { return []int32{0, 1, 1, 2, 0}[d.Set] }
	node := func(d Device) int32 { return []int32{0, 1, 2, 2, 2}[d.Set] }
	machine := func(free int16, sets ...int32) (list []Device) {
		for _, s := range sets {
			list = append(list, Device{Kind: 1, Free: free, Set: s})
		}
		return list
	}
	near := []func(Device) int32{link, node}
	for name, c := range map[string]struct {
		devices []Device
		need    Need
		want    []int16
		exist   bool
	}{
		"of one link":                       {machine(Whole, 4, 1, 3, 2), Need{Count: 2, Near: near}, []int16{1, 3}, true},
		"else of one node":                  {machine(Whole, 1, 4, 3), Need{Count: 2, Near: near}, []int16{1, 2}, true},
		"else any":                          {machine(Whole, 0, 1, 4), Need{Count: 2, Near: near}, []int16{0, 1}, true},
		"more than any link has":            {machine(Whole, 1, 3, 1, 3), Need{Count: 3, Near: near}, []int16{0, 1, 2}, true},
		"where the fewest are left":         {machine(Whole, 1, 1, 1, 3, 3), Need{Count: 2, Near: near}, []int16{3, 4}, true},
		"one is near itself":                {machine(Whole, 4, 1), Need{Count: 1, Near: near, Same: true}, []int16{0}, true},
		"it must be one link":               {machine(Whole, 1, 3, 2), Need{Count: 2, Near: near[:1], Same: true}, []int16{0, 2}, true},
		"and there is none":                 {machine(Whole, 1, 3, 4), Need{Count: 2, Near: near[:1], Same: true}, nil, false},
		"those without are of no link":      {machine(Whole, 0, 0, 4, 4), Need{Count: 2, Near: near[:1], Same: true}, nil, false},
		"there is, but taken":               {append(machine(Whole, 1), machine(500, 1)...), Need{Count: 2, Near: near[:1], Same: true}, nil, true},
		"of those that suit":                {machine(Whole, 1, 2, 3, 3), Need{Count: 2, Near: near, Suits: func(set int32) bool { return set == 3 || set == 1 }}, []int16{2, 3}, true},
		"too few suit":                      {machine(Whole, 1, 2, 3), Need{Count: 2, Suits: func(set int32) bool { return set == 3 }}, []int16{2}, false},
		"too few of what suits of one link": {machine(Whole, 1, 2, 3), Need{Count: 2, Near: near[:1], Same: true, Suits: func(set int32) bool { return set != 2 }}, nil, false},
	} {
		c.need.Kind, c.need.Milli = 1, Whole
		got, ok := Pick(c.devices, []Need{c.need}, nil)
		var indices []int16
		for _, u := range got {
			indices = append(indices, u.Index)
		}
		if !slices.Equal(indices, c.want) || ok != (len(c.want) == c.need.Count) {
			t.Errorf("%s: %v, %t, want %v", name, indices, ok, c.want)
		}
		if Exist(c.devices, []Need{c.need}) != c.exist {
			t.Errorf("%s: exist says %t", name, !c.exist)
		}
	}
}
