package screen

import (
	"net"
	"strconv"

	"github.com/musterhq/muster/reconciler/status"
)

// Endpoints returns the ports of tasks, one in a line, for a screen of so many cells, 0 for
// one without end.
func Endpoints(list []status.Endpoint, width int) string {
	t := Table{Columns: []Column{
		{Head: "TASK", Least: 16, Always: true},
		{Head: "PORT", Always: true},
		{Head: "ADDRESS", Always: true},
		{Head: "MACHINE", Least: 8, Always: true, Rank: 1},
		{Head: "READY", Always: true},
		{Head: "REASON", Least: 20},
	}}
	for i := range list {
		e := &list[i]
		ready, address := "yes", e.Address
		if !e.Ready {
			ready = "no"
		}
		for _, p := range e.Ports {
			if e.Address != "" {
				address = net.JoinHostPort(e.Address, strconv.Itoa(p.Port))
			}
			if e.Address6 != "" {
				address += "," + net.JoinHostPort(e.Address6, strconv.Itoa(p.Port))
			}
			t.Rows = append(t.Rows, cellsOf(e.Name, p.Name, address, e.Machine, ready, e.Reason))
		}
	}
	return t.Text(width, false)
}
