package runtime

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// worksFile is in the agent's directory, of a runtime that works here.
const worksFile = "runsc.json"

// works is what a verdict on a runtime is worth for: that program and keeper, until the
// machine is started again. To try it takes half a second.
type works struct {
	Boot     string  `json:"boot"`
	Programs []stamp `json:"programs"`
}

// stamp identifies a file as it is.
type stamp struct {
	Device  uint64 `json:"device"`
	Inode   uint64 `json:"inode"`
	Changed int64  `json:"changed"` // in nanoseconds
}

// worksNow is what a verdict on programs is of, now.
func worksNow(boot string, programs ...string) (works, error) {
	w := works{Boot: boot}
	for _, name := range programs {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil {
			return w, err
		}
		w.Programs = append(w.Programs, stamp{st.Dev, st.Ino, st.Ctim.Nano()})
	}
	return w, nil
}

// once calls try, unless dir has that it has worked.
func (w *works) once(dir string, try func() error) error {
	file := filepath.Join(dir, worksFile)
	var then works
	if b, err := os.ReadFile(file); err == nil && json.Unmarshal(b, &then) == nil && then.Boot == w.Boot && slices.Equal(then.Programs, w.Programs) {
		return nil
	}
	_ = os.Remove(file) // it may not be there
	if err := try(); err != nil {
		return err
	}
	if b, err := json.Marshal(w); err == nil {
		_ = os.WriteFile(file, b, 0o600) // else it is tried again at the next start
	}
	return nil
}
