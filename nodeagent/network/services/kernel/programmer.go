package kernel

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/nodeagent/network/services"
)

// Programmer keeps the kernel's table as services say. It has one owner at a time.
type Programmer struct {
	table *table
	plan  *services.Planner
	// known says that plan knows what the kernel has; then no one else had changed any rules in
	// this network namespace up to generation, unless foreign says so.
	known      bool
	generation uint32
	foreign    bool
	anew       bool // the table has to be made anew
	missing    bool // since there is none
}

// New returns a programmer for the services of a cell. Nothing is read or changed yet.
func New(cell string) *Programmer {
	return &Programmer{table: newTable(cell), plan: services.New()}
}

// Set adds services, or replaces those with the same key; the next Program programs them. They
// must not be changed any more.
func (p *Programmer) Set(list ...*services.Service) {
	for _, s := range list {
		p.plan.Set(s)
	}
}

// Remove removes services.
func (p *Programmer) Remove(keys ...string) {
	for _, k := range keys {
		p.plan.Remove(k)
	}
}

// Keys returns the keys of the services, in order.
func (p *Programmer) Keys() []string { return p.plan.Keys() }

// Program brings the kernel to what the services say, in one transaction, and returns the change
// that it made. It takes time in proportion to the services that have changed; at the first call,
// and after an error, it reads what the kernel has before, and that takes time in proportion to
// all. A table that is not as this package makes it is made anew, in the same transaction. After an
// error the kernel has what it had before.
func (p *Programmer) Program() (services.Change, error) {
	knew := p.known
	c, err := p.program()
	if err != nil && knew {
		return p.program() // someone else has changed elements
	}
	return c, err
}

// Audit is Program, which also finds elements that others have changed in the cell's table. It
// costs next to nothing while nobody else changes rules on this machine.
func (p *Programmer) Audit() (services.Change, error) {
	g, err := p.table.generation()
	if err != nil {
		return services.Change{}, err
	}
	p.known = p.known && g == p.generation && !p.foreign
	return p.Program()
}

func (p *Programmer) program() (services.Change, error) {
	if err := p.look(); err != nil {
		return services.Change{}, err
	}
	c := p.plan.Next()
	if c.Empty() && (!p.anew || p.missing) {
		return c, nil // who has no services needs no table
	}
	if err := p.table.apply(&c, p.anew); err != nil {
		p.known = false
		return services.Change{}, err
	}
	p.anew = false
	// Each transaction counts one. What others did meanwhile is seen by the next call.
	if g, err := p.table.generation(); err == nil && g == p.generation+1 {
		p.generation = g
	}
	return c, nil
}

// look makes sure that what the kernel has is known.
func (p *Programmer) look() error {
	g, err := p.table.generation()
	if err != nil || p.known && g == p.generation {
		return err
	}
	var state services.State
	if p.known {
		p.foreign = true
		err = p.table.check()
	} else {
		p.foreign = false
		state, err = p.table.readWhole()
	}
	p.anew, p.missing = errors.Is(err, errForeign), errors.Is(err, errMissing)
	if err != nil && !p.anew {
		return err
	}
	if p.anew {
		state = services.State{}
	}
	if p.anew || !p.known {
		p.plan.Found(state)
	}
	p.known, p.generation = true, g
	return nil
}

// Withdraw removes the cell's table: virtual addresses lead nowhere any more. The kernel ends
// established connections with the last table that translates addresses. The services stay, for the
// next Program.
func (p *Programmer) Withdraw() error {
	p.known = false
	if err := p.table.remove(); err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return nil
}

// Close closes the connections to the kernel. What is programmed stays.
func (p *Programmer) Close() { p.table.close() }
