package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// TestUsersDamaged: whatever becomes of the files, an owner keeps the user that its
// directories have, and no other owner gets it.
func TestUsersDamaged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root, to give directories away")
	}
	of := UserRange{First: 70_000, Last: 70_009} // few, so that hashes collide
	owners := []string{"alice", "bob", "carol", "dave", "erin"}
	foreign := func(dir string) error { // of another machine, with the checksum of such a file
		return durable.Documents{}.WriteTwice(filepath.Join(dir, usersFile), usersFile, usersDocument{map[string]int{"alice": 70_001, "bob": 70_000, "zoe": 70_002}})
	}
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	empty := func(names ...string) func(string) error {
		return func(dir string) error {
			for _, name := range names {
				if err := os.Truncate(filepath.Join(dir, name), 0); err != nil {
					return err
				}
			}
			return nil
		}
	}
	second := durable.Second(usersFile)
	for name, tt := range map[string]struct {
		damage   func(dir string) error
		reported bool
	}{
		"nothing":        {func(string) error { return nil }, false},
		"first emptied":  {empty(usersFile), true},
		"second emptied": {empty(second), true},
		"both emptied":   {empty(usersFile, second), true},
		"first lost":     {remove(usersFile), true},
		"another's":      {foreign, true},
		"of an old agent": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, usersFile), []byte(`{"alice":70001}`), 0o600)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			u, err := openUsers(dir, of, durable.Documents{})
			if err != nil {
				t.Fatal(err)
			}
			had, taken := map[string]int{}, map[int]string{}
			for i, o := range owners {
				id, err := u.id(o)
				if err != nil {
					t.Fatal(err)
				}
				if other, ok := taken[id]; ok {
					t.Fatalf("%s and %s have %d", o, other, id)
				}
				work := filepath.Join(dir, "tasks/local", o, "job/0", fmt.Sprint(i+1), WorkDir)
				if err := os.MkdirAll(work, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(work, id, id); err != nil {
					t.Fatal(err)
				}
				had[o], taken[id] = id, o
			}
			if err := tt.damage(dir); err != nil {
				t.Fatal(err)
			}
			reported := 0
			u, err = openUsers(dir, of, durable.Documents{Report: func(durable.Damage) { reported++ }})
			if err != nil {
				t.Fatal(err)
			}
			if (reported > 0) != tt.reported {
				t.Errorf("reported %d times, want a report: %t", reported, tt.reported)
			}
			for _, o := range append([]string{"frank", "zoe"}, owners...) { // the new ones first
				id, err := u.id(o)
				if err != nil {
					t.Fatal(err)
				}
				if want, ok := had[o]; ok && id != want {
					t.Errorf("%s has %d, and its files %d", o, id, want)
				}
				if other, ok := taken[id]; ok && other != o {
					t.Errorf("%s has %d, as the files of %s", o, id, other)
				}
				taken[id] = o
			}
			again, err := openUsers(dir, of, durable.Documents{Report: func(d durable.Damage) { t.Errorf("reported again: %v", d) }})
			if err != nil || len(again.given) != len(u.given) {
				t.Errorf("read again: %v, %v; want %v", again, err, u.given)
			}
		})
	}
}

// TestUsersOlder: who was given a user keeps it, though the file is an older copy that does
// not know, and there is no directory of his any more.
func TestUsersOlder(t *testing.T) {
	t.Parallel()
	dir, of := t.TempDir(), UserRange{First: 70_000, Last: 70_001}
	reported := 0
	open := func() *users {
		u, err := openUsers(dir, of, durable.Documents{Report: func(durable.Damage) { reported++ }})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	id := func(u *users, owner string) int {
		id, err := u.id(owner)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	u := open()
	id(u, "alice")
	older, err := os.ReadFile(u.file)
	if err != nil {
		t.Fatal(err)
	}
	bob := id(u, "bob")
	if err := os.WriteFile(u.file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	u = open()
	if _, err := u.id("carol"); err == nil {
		t.Error("carol was given a user that is another's")
	}
	if got := id(u, "bob"); got != bob {
		t.Errorf("bob has %d, and had %d", got, bob)
	}
	if open(); reported != 1 {
		t.Errorf("reported %d times, want once", reported)
	}
}

// TestUsersOfContainers: who gives a directory to another user of its container keeps its
// own, and no other owner gets that.
func TestUsersOfContainers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	dir, of := t.TempDir(), UserRange{First: 70_000, Last: 70_001}
	open := func() *users {
		u, err := openUsers(dir, of, durable.Documents{Report: func(d durable.Damage) { t.Errorf("reported: %v", d) }})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	want, err := open().id("alice")
	work := filepath.Join(dir, "tasks/local/alice/job/0/1", WorkDir)
	for _, inside := range []int{1, schema.ContainerUsers - 1} {
		user := of.firstID(want) + inside
		if err = errors.Join(err, os.MkdirAll(work, 0o700), os.Chown(work, user, user)); err != nil {
			t.Fatal(err)
		}
		if got, err := open().id("alice"); got != want || err != nil {
			t.Errorf("user %d of its container: alice has %d, %v; want %d", inside, got, err, want)
		}
	}
}

// TestUsersOfOldRelease: the file of an earlier release is taken once, and written
// with its checksums.
func TestUsersOfOldRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, usersFile), []byte(`{"alice":70000,"bob":70001}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, old := range []bool{true, false} {
		u, err := openUsers(dir, DefaultUsers, durable.Documents{Old: old, Report: func(d durable.Damage) { t.Error(d) }})
		if err != nil {
			t.Fatal(err)
		}
		if id, err := u.id("bob"); err != nil || id != 70001 {
			t.Errorf("bob has %d, %v; want 70001", id, err)
		}
	}
}

// TestOwnAfterKill: a directory that an agent has made, and was killed before it gave it
// away, is given away by the next one; that of a task stays as it is.
func TestOwnAfterKill(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	user := &User{UID: schema.FirstTaskUser, GID: schema.FirstTaskUser}
	for _, was := range []int{0, schema.FirstContainerUser + 5} {
		dir := filepath.Join(t.TempDir(), "work")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Lchown(dir, was, was), Own(dir, user)); err != nil {
			t.Fatal(err)
		}
		var s unix.Stat_t
		if err := unix.Lstat(dir, &s); err != nil {
			t.Fatal(err)
		}
		if want := cmp.Or(was, user.UID); int(s.Uid) != want || was == 0 && int(s.Gid) != user.GID {
			t.Errorf("of user %d, it is user %d's and group %d's", was, s.Uid, s.Gid)
		}
	}
}
