package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

func TestVolumeNote(t *testing.T) {
	t.Parallel()
	r := &schema.MachineRecord{MachineInfo: schema.MachineInfo{Attributes: map[string]string{
		schema.HasVolumes: "true", "volume.words": "true", "volume.log": "true", "volume.log.writable": "true", "volume.old": "true", "rack": "r1",
	}}}
	declared := func(names ...string) *schema.Cell {
		c := &schema.Cell{Name: "local", Volumes: map[string]schema.CellVolume{}}
		for _, n := range names {
			c.Volumes[n] = schema.CellVolume{}
		}
		return c
	}
	const note = "shares volumes that cell local does not declare, so that no job may use them: "
	for name, tt := range map[string]struct {
		cell *schema.Cell
		want []string
	}{
		"declares nothing":          {&schema.Cell{Name: "local"}, nil},
		"declares all, and another": {declared("log", "old", "words", "more"), nil},
		"declares one":              {declared("words"), []string{note + "log, old"}},
		"declares none":             {declared(), []string{note + "log, old, words"}},
	} {
		if diff := cmp.Diff(tt.want, volumeNote(r, tt.cell)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
