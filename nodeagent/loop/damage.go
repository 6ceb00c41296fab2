package loop

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/musterhq/muster/nodeagent/durable"
)

// Damages gathers what is found damaged in the state directory, by whoever reads it.
// Its methods may be called from any goroutine.
type Damages struct {
	root string
	log  *slog.Logger
	news chan struct{} // holds a token when there is something to take

	mu    sync.Mutex // guards found
	found []durable.Damage
}

// NewDamages returns one for the state directory root.
func NewDamages(root string, log *slog.Logger) *Damages {
	return &Damages{root: root, log: log, news: make(chan struct{}, 1)}
}

// Report records a damage and logs it.
func (d *Damages) Report(x durable.Damage) {
	d.log.Error("a file of the state directory was damaged or lost", "file", x.File, "why", x.Why, "repaired", x.Repaired)
	d.mu.Lock()
	d.found = append(d.found, x)
	d.mu.Unlock()
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// take returns what was found since the last call.
func (d *Damages) take() []durable.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := d.found
	d.found = nil
	return found
}

// mostNamed is how many damaged files the condition names.
const mostNamed = 3

// describe says in a line what was found.
func (d *Damages) describe(found []durable.Damage) string {
	var parts []string
	for _, x := range found[:min(len(found), mostNamed)] {
		name, err := filepath.Rel(d.root, x.File)
		if err != nil {
			name = x.File
		}
		parts = append(parts, name+": "+x.Why)
	}
	if more := len(found) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}
