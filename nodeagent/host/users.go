package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
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

// firstID returns the first of the users and groups that the containers of an owner have
// beside the owner's, which is given.
func (r UserRange) firstID(owner int) int {
	return schema.FirstContainerUser + (owner-r.First)*schema.ContainerUsers
}

// ownerOf returns the owner's user of one of its containers, and any other as it is.
func (r UserRange) ownerOf(id int) int {
	if id < r.firstID(r.First) || id >= r.firstID(r.Last+1) {
		return id
	}
	return r.First + (id-schema.FirstContainerUser)/schema.ContainerUsers
}

// User is a numeric user, and the group of its own.
type User struct{ UID, GID int }

// users gives each owner a user of its own, for ever: files that a task left
// behind never become another owner's. Which one follows from the owner's name, or
// is the next that is free. It is on disk twice, and a third time as the user of the
// owner's directories, which have the last word.
type users struct {
	file string
	of   UserRange
	docs durable.Documents

	mu    sync.Mutex // guards what follows
	given map[string]int
	used  map[int]bool // of files whose owner is not known
}

// usersDocument is what usersFile holds.
type usersDocument struct {
	Given map[string]int `json:"given"`
}

// openUsers reads the users of the state directory dir. What is damaged or lost is
// put together from what the tasks' directories say.
func openUsers(dir string, of UserRange, docs durable.Documents) (*users, error) {
	u := &users{file: filepath.Join(dir, usersFile), of: of, docs: docs, given: map[string]int{}}
	changed := docs.Old && u.readOld()
	if !changed {
		var doc usersDocument
		err := docs.ReadTwice(u.file, usersFile, &doc)
		var damage *durable.Damage
		if changed = errors.As(err, &damage); !changed && err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("users of tasks: %w", err)
		}
		if err == nil && doc.Given != nil {
			u.given = doc.Given
		}
		changed = u.addSecond() || changed
	}
	var found map[string][]int
	found, u.used = ownersOf(dir, of)
	if u.agree(found) || changed {
		u.saveOrReport()
	}
	return u, nil
}

// addSecond takes the users that only the second copy has, for one that was given is
// never given again: the first was put there by somebody, or written last when an agent
// was killed. It reports whether there are any.
func (u *users) addSecond() bool {
	var doc usersDocument
	if (durable.Documents{}).Read(durable.Second(u.file), durable.Second(usersFile), &doc) != nil {
		return false // it is written again
	}
	had := len(u.given)
	for _, owner := range slices.Sorted(maps.Keys(doc.Given)) {
		id := doc.Given[owner]
		if _, ok := u.given[owner]; !ok && !slices.Contains(slices.Collect(maps.Values(u.given)), id) {
			u.given[owner] = id
		}
	}
	if len(u.given) == had {
		return false
	}
	if u.docs.Report != nil {
		u.docs.Report(durable.Damage{File: u.file, Why: "it is older than its other copy", Repaired: true})
	}
	return true
}

// learn takes the users of what runs: of owners that are in no file.
func (u *users) learn(running map[string]int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	news := false
	for owner, id := range running {
		if id < u.of.First || id > u.of.Last {
			continue
		}
		u.used[id] = true
		if _, ok := u.given[owner]; !ok && !slices.Contains(slices.Collect(maps.Values(u.given)), id) {
			u.given[owner], news = id, true
		}
	}
	if news {
		u.saveOrReport()
	}
}

// saveOrReport saves. A disk that refuses now is asked again by the next new owner.
func (u *users) saveOrReport() {
	if err := u.save(); err != nil && u.docs.Report != nil {
		u.docs.Report(durable.Damage{File: u.file, Why: "it cannot be written anew: " + err.Error()})
	}
}

// readOld reads the file of an earlier release, and reports whether there is one.
func (u *users) readOld() bool {
	b, err := durable.ReadRegular(u.file)
	given := map[string]int{}
	if err != nil || json.Unmarshal(b, &given) != nil {
		return false
	}
	u.given = given
	return true
}

// agree makes what is given what the owners' directories say, and reports whether
// that has changed anything.
func (u *users) agree(found map[string][]int) bool {
	was := maps.Clone(u.given)
	owner := map[int]string{} // by their directories
	for _, name := range slices.Sorted(maps.Keys(found)) {
		id, ok := u.given[name]
		if !ok || !slices.Contains(found[name], id) {
			id = slices.Min(found[name])
		}
		if _, taken := owner[id]; taken && was[name] != id {
			continue
		}
		owner[id] = name
	}
	for name, id := range u.given {
		if of, ok := owner[id]; id < u.of.First || id > u.of.Last || ok && of != name {
			delete(u.given, name)
		}
	}
	for id, name := range owner {
		u.given[name] = id
	}
	if maps.Equal(was, u.given) {
		return false
	}
	if len(was) > 0 && u.docs.Report != nil {
		u.docs.Report(durable.Damage{File: u.file, Why: "it does not match this machine's tasks; users are taken from their directories", Repaired: true})
	}
	return true
}

// The directories below the state directory that are their owners', by the levels
// from the cell's on.
var owned = []string{"tasks/*/*/*/*/*/" + WorkDir, "tasks/*/*/*/*/*/" + SharedDir, "sticky/*/*/*/*/" + nodeagent.StickyData}

// ownersOf finds the users of the owners' directories, and those of what is being
// removed. Who is root in a container may give a directory to another user of it.
func ownersOf(dir string, of UserRange) (found map[string][]int, used map[int]bool) {
	found, used = map[string][]int{}, map[int]bool{}
	user := func(path string) int {
		var s unix.Stat_t
		if unix.Lstat(path, &s) != nil {
			return 0
		}
		return of.ownerOf(int(s.Uid))
	}
	for _, pattern := range owned {
		paths, _ := filepath.Glob(filepath.Join(globbed(dir), pattern)) // the pattern is good
		for _, path := range paths {
			rel, err := filepath.Rel(dir, path)
			if id := user(path); err == nil && id != 0 {
				name := strings.Split(rel, "/")[2] // below tasks and the cell
				if !slices.Contains(found[name], id) {
					found[name] = append(found[name], id)
				}
			}
		}
	}
	for _, ids := range found {
		for _, id := range ids {
			used[id] = true
		}
	}
	removed, _ := filepath.Glob(filepath.Join(globbed(dir), "removed/*"))
	for _, path := range removed {
		used[user(path)] = true
	}
	return found, used
}

// globbed returns a pattern that matches dir alone.
func globbed(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

// id returns the user of owner. A new one is on disk before it is used.
func (u *users) id(owner string) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if id, ok := u.given[owner]; ok {
		return id, nil
	}
	id, ok := u.next(owner)
	if !ok {
		return 0, fmt.Errorf("user for the tasks of %s: all of %d to %d are given", owner, u.of.First, u.of.Last)
	}
	u.given[owner] = id
	if err := u.save(); err != nil {
		delete(u.given, owner)
		return 0, fmt.Errorf("user for the tasks of %s: %w", owner, err)
	}
	return id, nil
}

// next returns the user of a new owner: the same on each machine, if it is free.
func (u *users) next(owner string) (int, bool) {
	taken := maps.Clone(u.used)
	for _, id := range u.given {
		taken[id] = true
	}
	count := u.of.Last - u.of.First + 1
	h := fnv.New64a()
	_, _ = h.Write([]byte(owner)) // never fails
	first := int(h.Sum64() % uint64(count))
	for i := range count {
		if id := u.of.First + (first+i)%count; !taken[id] {
			return id, true
		}
	}
	return 0, false
}

// verify writes the files again if one of them is damaged or lost.
func (u *users) verify() {
	u.mu.Lock()
	defer u.mu.Unlock()
	quiet := durable.Documents{}
	for name, id := range map[string]string{u.file: usersFile, durable.Second(u.file): durable.Second(usersFile)} {
		var none struct{}
		err := quiet.Read(name, id, &none)
		var damage *durable.Damage
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(u.given) > 0:
			damage = &durable.Damage{File: name, Why: "it was missing"}
		case !errors.As(err, &damage):
			continue
		}
		if damage.Repaired = u.save() == nil; u.docs.Report != nil {
			u.docs.Report(*damage)
		}
	}
}

func (u *users) save() error {
	return u.docs.WriteTwice(u.file, usersFile, usersDocument{u.given})
}

// The capabilities that changing the user takes.
var needed = []struct {
	bit  uint
	name string
}{{unix.CAP_CHOWN, "CAP_CHOWN"}, {unix.CAP_KILL, "CAP_KILL"}, {unix.CAP_SETGID, "CAP_SETGID"}, {unix.CAP_SETUID, "CAP_SETUID"}}

// Holds reports whether the agent has a capability, such as unix.CAP_CHOWN.
func Holds(bit uint) bool {
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
		if !Holds(c.bit) {
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
