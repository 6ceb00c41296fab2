package device

import (
	"slices"
	"testing"
)

func TestPick(t *testing.T) {
	t.Parallel()
	const gpu, disk, old, new = 1, 2, 10, 11
	machine := []Device{{gpu, old, Whole}, {gpu, new, 400}, {gpu, new, Whole}, {disk, old, Whole}, {gpu, old, 300}}
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
	list := []Device{{1, 1, 100}, {1, 1, 0}}
	Give(list, []Use{{0, 200}, {1, 300}, {2, 400}}) // the last is one of a machine that had more
	if list[0].Free != 300 || list[1].Free != 300 {
		t.Errorf("free are %d and %d, want 300 each", list[0].Free, list[1].Free)
	}
}
