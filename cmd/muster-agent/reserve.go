package main

import (
	"fmt"
	"strconv"

	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/schema"
)

// reserve is what was typed of what is kept for the system.
type reserve struct{ cpu, ram, disk amount }

// amount is a flag's value: a number that is not negative, or none.
type amount struct {
	typed bool
	value int64
}

// String is empty: the default depends on the machine.
func (*amount) String() string { return "" }

// Type returns what stands for the value in the help.
func (*amount) Type() string { return "int" }

// Set parses a number.
func (a *amount) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("want a number from 0, without a unit")
	}
	*a = amount{true, n}
	return nil
}

// positive is a flag's value: a number above 0; 0 is none.
type positive int64

// String is empty: the default depends on the machine.
func (*positive) String() string { return "" }

// Type returns what stands for the value in the help.
func (*positive) Type() string { return "int" }

// Set parses a number.
func (p *positive) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("want a number from 1, without a unit")
	}
	*p = positive(n)
	return nil
}

// kept is one dimension of a reserve, and the names of its flags.
type kept struct {
	dimension     schema.Dimension
	amount        amount
	flag, instead string
}

func (r *reserve) each() []kept {
	return []kept{
		{schema.CPUMilli, r.cpu, "reserve-cpu-milli", "cpu-milli"},
		{schema.RAMBytes, r.ram, "reserve-ram-bytes", "ram-bytes"},
		{schema.DiskBytes, r.disk, "reserve-disk-bytes", "disk-bytes"},
	}
}

// split divides what a machine has into what is for tasks, as typed if it is, and
// what is kept. It errs when tasks would get nothing.
func (r *reserve) split(all, typed schema.Resources) (tasks, system schema.Resources, err error) {
	system = machine.Reserve(all)
	for _, k := range r.each() {
		value := of(&system, k.dimension)
		switch given := typed.Of(k.dimension); {
		case given != 0:
			*value = max(all.Of(k.dimension)-given, 0)
		case k.amount.typed:
			*value = k.amount.value
		}
	}
	tasks, err = machine.Less(all, system)
	if err != nil {
		return tasks, system, usageError{err, "keep less with --reserve-cpu-milli, --reserve-ram-bytes or --reserve-disk-bytes"}
	}
	for _, d := range schema.Dimensions() {
		if given := typed.Of(d); given != 0 {
			*of(&tasks, d) = given // a machine may be said to have more than it has
		}
	}
	return tasks, system, nil
}

// of returns where an amount is.
func of(r *schema.Resources, d schema.Dimension) *int64 {
	switch d {
	case schema.CPUMilli:
		return &r.CPUMilli
	case schema.RAMBytes:
		return &r.RAMBytes
	}
	return &r.DiskBytes
}
