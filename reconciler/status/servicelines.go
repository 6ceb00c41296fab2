package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Lines returns the explanation as text.
func (x *ServiceExplanation) Lines() []string {
	var l lines
	l.say("service %s: %d of %d endpoints ready", x.Name, x.Ready, x.All)
	l.sayIf("  because: %s", x.Reason)
	l.say("  %s at %s", x.Domain, x.where())
	l.say("  picks %s of %s", x.Selector, strings.Join(orNone(x.Jobs, "no job"), ", "))
	l.say("  sends connections %s", x.Sends)
	if x.Sticky != "" {
		l.say("  a client keeps its task, while that is sent to")
	}
	if x.Prefer != "" {
		l.say("  a machine's own tasks come first")
	}
	for i := range x.Endpoints {
		e := &x.Endpoints[i]
		text := fmt.Sprintf("  task %s", e.Name)
		if e.Machine != "" {
			text += fmt.Sprintf(" on %s", e.Machine)
		}
		switch {
		case len(e.Sent) > 0 && e.Left != "":
			text += fmt.Sprintf(": is an endpoint of %s alone: %s", strings.Join(e.Sent, ", "), e.Left)
		case len(e.Sent) > 0:
			text += ": is an endpoint"
			if !e.Ready {
				text += ", though not ready: " + e.Reason
			}
		default:
			text += ": is no endpoint: " + e.Left
		}
		if apart := x.apart(&e.Endpoint); len(e.Sent) > 0 && len(apart) > 0 {
			text += fmt.Sprintf(", not of %s: it has no address of that family", strings.Join(apart, " and "))
		}
		if e.Weight != schema.DefaultWeight && e.Weight > 0 {
			text += fmt.Sprintf(" (weight %d)", e.Weight)
		}
		l.say("%s", text)
	}
	for _, m := range x.Machines {
		l.say("  machine %s %s", m.Machine, m.Reason)
	}
	return l
}

// where returns the addresses and ports.
func (s *Serving) where() string {
	var at []string
	for _, a := range s.Addresses {
		at = append(at, a.String())
	}
	return strings.Join(orNone(at, "no address"), " and ") + ", " + s.PortsText()
}

// PortsText returns the ports as text, each as NAME:PORT/PROTOCOL, without that if it is TCP.
func (s *Serving) PortsText() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.Ports)) {
		p := s.Ports[name]
		text := fmt.Sprintf("%s:%d", name, p.Port)
		if p.Protocol != "" && p.Protocol != schema.TCP {
			text += "/" + p.Protocol
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

func orNone(list []string, none string) []string {
	if len(list) == 0 {
		return []string{none}
	}
	return list
}
