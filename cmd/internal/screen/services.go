package screen

import (
	"fmt"

	"github.com/musterhq/muster/reconciler/status"
)

// Services returns services, one in a line, for a screen of so many cells, 0 for one without
// end.
func Services(list []status.Serving, width int) string {
	t := Table{Columns: []Column{
		{Head: "NAME", Least: 16, Always: true},
		{Head: "ADDRESS", Always: true},
		{Head: "PORTS", Least: 10, Always: true},
		{Head: "READY", Always: true},
		{Head: "DNS", Least: 20, Rank: 1},
		{Head: "REASON", Least: 20},
	}}
	for i := range list {
		s := &list[i]
		address := "-"
		for j, a := range s.Addresses {
			if j == 0 {
				address = a.String()
			} else {
				address += "," + a.String()
			}
		}
		t.Rows = append(t.Rows, cellsOf(s.Name, address, s.PortsText(), fmt.Sprintf("%d/%d", s.Ready, s.All), s.Domain, s.Reason))
	}
	return t.Text(width, false)
}
