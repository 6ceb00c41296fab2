package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// volumeNote says of a machine that it shares directories which its cell does not declare, so that
// no job may name them; nil if there is none, or the cell leaves it to the machines.
func volumeNote(r *schema.MachineRecord, cell *schema.Cell) []string {
	if cell.Volumes == nil {
		return nil
	}
	names := slices.DeleteFunc(schema.SharedVolumes(r.Attributes), func(name string) bool {
		_, declared := cell.Volumes[name]
		return declared
	})
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("shares volumes that cell %s does not declare, so that no job may use them: %s", cell.Name, strings.Join(names, ", "))}
}
