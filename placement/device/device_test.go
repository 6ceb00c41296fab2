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
		got, ok := Choice{c.needs}.Pick(machine, nil)
		if ok != c.ok || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %t, want %v, %t", name, got, ok, c.want, c.ok)
		}
	}
	if needs := []Need{{Kind: gpu, Models: []int16{old}, Count: 2, Milli: Whole}}; (Choice{needs}).Exist(machine) < 0 {
		t.Error("a device of which a share is taken counts as not there")
	}
	if needs := []Need{{Kind: disk, Count: 2, Milli: Whole}}; (Choice{needs}).Exist(machine) >= 0 {
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
		got, ok := Choice{{c.need}}.Pick(c.devices, nil)
		var indices []int16
		for _, u := range got {
			indices = append(indices, u.Index)
		}
		if !slices.Equal(indices, c.want) || ok != (len(c.want) == c.need.Count) {
			t.Errorf("%s: %v, %t, want %v", name, indices, ok, c.want)
		}
		if (Choice{{c.need}}.Exist(c.devices) >= 0) != c.exist {
			t.Errorf("%s: exist says %t", name, !c.exist)
		}
	}
}

// TestChoice: of alternatives the first is taken for which enough is free, and what was taken says
// which it was.
func TestChoice(t *testing.T) {
	t.Parallel()
	large := Need{Kind: 1, Count: 1, Milli: Whole, Suits: func(set int32) bool { return set == 2 }}
	two, share := Need{Kind: 1, Count: 2, Milli: Whole}, Need{Kind: 1, Count: 1, Milli: 300}
	other := Need{Kind: 2, Count: 1, Milli: Whole}
	machine := func(free ...int16) (list []Device) { // the first is large
		for i, f := range free {
			list = append(list, Device{Kind: 1, Free: f, Set: []int32{2, 1, 1}[i]})
		}
		return list
	}
	for name, c := range map[string]struct {
		choice      Choice
		devices     []Device
		free, exist int
		want        []Use
	}{
		"the first":                       {Choice{{large}, {two}, {share}}, machine(Whole, Whole, Whole), 0, 0, []Use{{0, Whole}}},
		"the first that is free":          {Choice{{large}, {two}, {share}}, machine(500, Whole, Whole), 1, 0, []Use{{1, Whole}, {2, Whole}}},
		"the last":                        {Choice{{large}, {two}, {share}}, machine(500, 100, Whole), 2, 0, []Use{{0, 300}}},
		"none is free":                    {Choice{{large}, {two}, {share}}, machine(100, 100, 100), -1, 0, nil},
		"none is there":                   {Choice{{other}}, machine(Whole), -1, -1, nil},
		"what another kind lacks":         {Choice{{large, other}, {share}}, machine(Whole, Whole), 1, 1, []Use{{0, 300}}},
		"nothing, as the last":            {Choice{{other}, nil}, machine(Whole), 1, 1, nil},
		"nothing, where there is another": {Choice{{large}, nil}, machine(Whole), 0, 0, []Use{{0, Whole}}},
	} {
		before := []Use{{9, 1}}
		got, ok := c.choice.Pick(c.devices, before)
		if ok != (c.free >= 0) || ok && !slices.Equal(got[1:], c.want) {
			t.Errorf("%s: %v, %t, want %v", name, got, ok, c.want)
		}
		if free, exist := c.choice.Free(c.devices), c.choice.Exist(c.devices); free != c.free || exist != c.exist {
			t.Errorf("%s: alternative %d is free and %d is there, want %d and %d", name, free, exist, c.free, c.exist)
		}
		if chosen := c.choice.Chosen(c.devices, c.want); ok && chosen != c.free {
			t.Errorf("%s: %v are of alternative %d, want %d", name, c.want, chosen, c.free)
		}
	}
	if chosen := (Choice{{large}, {share}}).Chosen(machine(0, 0), []Use{{1, Whole}}); chosen != -1 {
		t.Errorf("a device that suffices for none is of alternative %d", chosen)
	}
	linked := Need{Kind: 1, Count: 2, Milli: Whole, Same: true, Near: []func(Device) int32{func(d Device) int32 { return d.Set }}}
	if chosen := (Choice{{linked}, {two}}).Chosen(machine(0, 0, 0), []Use{{0, Whole}, {1, Whole}}); chosen != 1 {
		t.Errorf("two that are not near each other are of alternative %d, want 1", chosen)
	}
}

func TestLeast(t *testing.T) {
	t.Parallel()
	two, one, none := []Need{{Count: 2, Milli: Whole}}, []Need{{Count: 1, Milli: Whole}}, []Need{}
	counts := func(c Choice) (out []int) {
		for _, needs := range c {
			n := 0
			for i := range needs {
				n += needs[i].Count
			}
			out = append(out, n)
		}
		return out
	}
	if got := counts(Choice{two, none, one}.Least()); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("least first: %v", got)
	}
	for name, c := range map[string]struct {
		a, b Choice
		want []int
	}{
		"one and one":      {Choice{one}, Choice{one}, []int{2}},
		"of one the least": {Choice{two, one}, Choice{one}, []int{2}},
		"nothing and some": {nil, Choice{two, one}, []int{2, 1}},
	} {
		if got := counts(c.a.With(c.b)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
