package main

import (
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// userFlag names users of this machine.
type userFlag struct {
	text  []string
	users []web.LocalUser
}

func (f *userFlag) String() string { return strings.Join(f.text, ",") }

// Type names the flag's type in the help.
func (f *userFlag) Type() string { return "user" }

// Set takes NAME, NUMBER or FIRST-LAST, with or without :read-only or :plan. What could be a
// task's may only read: which owner's tasks have a number is the agents' choice.
func (f *userFlag) Set(s string) error {
	name, role, given := strings.Cut(s, ":")
	u := web.LocalUser{Role: identity.Operator}
	if given {
		if u.Role = identity.Role(role); !u.Role.Client() {
			return fmt.Errorf("role %q: want %s, %s or %s", role, identity.Operator, identity.ReadOnly, identity.Plan)
		}
	}
	var err error
	if u.First, u.Last, err = usersOf(name); err != nil {
		return err
	}
	for _, tasks := range [][2]uint32{{schema.FirstTaskUser, schema.LastTaskUser}, {schema.FirstContainerUser, schema.LastContainerUser}} {
		if u.Role == identity.Operator && u.First <= tasks[1] && u.Last >= tasks[0] {
			return fmt.Errorf("users %d to %d are those of tasks: they may be given %s:%s alone", tasks[0], tasks[1], name, identity.ReadOnly)
		}
	}
	f.text, f.users = append(f.text, s), append(f.users, u)
	return nil
}

func usersOf(name string) (first, last uint32, err error) {
	from, to, isRange := strings.Cut(name, "-")
	if !isRange {
		to = from
	}
	a, err1 := strconv.ParseUint(from, 10, 32)
	b, err2 := strconv.ParseUint(to, 10, 32)
	if err1 == nil && err2 == nil {
		if a > b {
			return 0, 0, fmt.Errorf("%s: want the lower number first", name)
		}
		return uint32(a), uint32(b), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: want a name of /etc/passwd, a number, or FIRST-LAST", err)
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), uint32(id), err
}
