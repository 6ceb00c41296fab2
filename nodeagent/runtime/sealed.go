package runtime

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/keeper"
)

// sealed is a program of the machine, and a copy of it in memory that nobody can change. OCI
// runtimes make one for themselves at each start, lest a container writes to the machine's
// program by /proc/PID/exe, and execute themselves again; who is executed from one does
// without, which is a third of crun's time. Its methods may be called from any goroutine.
type sealed struct {
	path string

	mu   sync.Mutex // guards what follows
	file *os.File   // nil: there is none
	of   unix.Stat_t
}

// open returns the copy of the program as it is now; nil if there cannot be one. It is closed
// when nobody has it any more.
func (s *sealed) open() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now unix.Stat_t
	if err := unix.Stat(s.path, &now); err != nil {
		return nil
	}
	if s.file != nil && now.Dev == s.of.Dev && now.Ino == s.of.Ino && now.Ctim == s.of.Ctim {
		return s.file
	}
	s.of, s.file = now, nil
	if file, err := keeper.Sealed(s.path); err == nil { // else it is executed from where it is, as ever
		s.file = file
	}
	return s.file
}
