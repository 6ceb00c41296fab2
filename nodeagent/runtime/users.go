package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

// usersFile maps owners to users, in the state directory.
const usersFile = "users.json"

// UserRange are numeric users, both ends included. Each is also the number of
// a group.
type UserRange struct {
	First, Last int
}

// DefaultUsers are those that the master knows as tasks'.
var DefaultUsers = UserRange{First: schema.FirstTaskUser, Last: schema.LastTaskUser}

// users gives each owner a user of its own, for ever: files that a task left
// behind never become another owner's.
type users struct {
	file string
	of   UserRange

	mu    sync.Mutex // guards given
	given map[string]int
}

func openUsers(file string, of UserRange) (*users, error) {
	u := &users{file: file, of: of, given: map[string]int{}}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &u.given)
	}
	if err != nil {
		return nil, fmt.Errorf("users of tasks: %s: %w", file, err)
	}
	return u, nil
}

// id returns the user of owner. A new one is on disk before it is used.
func (u *users) id(owner string) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id, ok := u.given[owner]; ok {
		return id, nil
	}
	next := u.of.First
	for _, id := range u.given {
		next = max(next, id+1)
	}
	if next > u.of.Last {
		return 0, fmt.Errorf("user for the tasks of %s: all of %d to %d are given", owner, u.of.First, u.of.Last)
	}
	u.given[owner] = next
	if err := u.save(); err != nil {
		delete(u.given, owner)
		return 0, fmt.Errorf("user for the tasks of %s: %w", owner, err)
	}
	return next, nil
}

func (u *users) save() error { return save(u.file, u.given) }

// save writes v to file as JSON, whole and durably.
func save(file string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.Write(file, b, 0o600)
}

// The capabilities that changing the user takes.
var needed = []struct {
	bit  uint
	name string
}{{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"}}

// holds reports whether the agent has a capability.
func holds(bit uint) bool {
	status, _ := os.ReadFile("/proc/self/status") // nothing read: nothing may be done
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			effective, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return effective>>bit&1 == 1
		}
	}
	return false
}

// cannotSwitch says why tasks cannot run as users of their own, "" if they can.
func cannotSwitch(of UserRange) string {
	if os.Geteuid() != 0 {
		return "not root"
	}
	for _, c := range needed {
		if !holds(c.bit) {
			return "root without " + c.name
		}
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		b, err := os.ReadFile(file)
		if err == nil && !mapped(string(b), of) {
			return fmt.Sprintf("users %d to %d are not in this user namespace", of.First, of.Last)
		}
	}
	return ""
}

// mapped reports whether one line of a user namespace's map covers all of r.
func mapped(table string, r UserRange) bool {
	for line := range strings.Lines(table) {
		var inside, outside, count int
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && inside <= r.First && r.Last < inside+count {
			return true
		}
	}
	return false
}
