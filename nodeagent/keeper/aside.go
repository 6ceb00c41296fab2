package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// asideDir is on no disk: ends are written there whose own directory takes nothing,
// since its file system has become read-only, say.
const asideDir = "/dev/shm"

// aside is an end there.
type aside struct {
	Dir  string `json:"dir"` // whose end it is
	Exit Exit   `json:"exit"`
}

func asideFile(dir string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, dir) // a hash takes everything
	return fmt.Sprintf("%s/muster-exit-%d-%016x", asideDir, os.Geteuid(), h.Sum64())
}

// putAside writes the end of dir down in memory, where it stays until the machine
// goes down or it is in its own place. Everybody may write there, so nothing that is
// there is used.
func putAside(dir string, exit Exit) error {
	b, err := json.Marshal(aside{dir, exit})
	if err != nil {
		return err
	}
	name := asideFile(dir)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// dropAside removes the end of dir that was put aside, if one was.
func dropAside(dir string) { _ = os.Remove(asideFile(dir)) }

// takeAside returns the end of dir that was put aside, and moves it to its place if
// that takes it by now; false if there is none that this user has written.
func takeAside(dir string) (Exit, bool) {
	name := asideFile(dir)
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Exit{}, false
	}
	defer f.Close()
	var s unix.Stat_t
	if unix.Fstat(int(f.Fd()), &s) != nil || s.Mode != unix.S_IFREG|0o600 || int(s.Uid) != os.Geteuid() {
		return Exit{}, false
	}
	b, err := io.ReadAll(io.LimitReader(f, exitRoom))
	var a aside
	if err != nil || json.Unmarshal(b, &a) != nil || a.Dir != dir {
		return Exit{}, false
	}
	if writeEnd(dir, a.Exit) == nil {
		_ = os.Remove(name)
	}
	return a.Exit, true
}
