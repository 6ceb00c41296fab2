package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// environment returns the task's environment with what SecretEnv holds, which is in no
// file on disk.
func (s *Spec) environment() ([]string, error) {
	if s.SecretEnv == "" {
		return s.Env, nil
	}
	list, err := os.ReadDir(s.SecretEnv)
	if err != nil {
		return nil, fmt.Errorf("secrets of the environment: %w", err)
	}
	more := make([]string, 0, len(list))
	for _, e := range list {
		value, err := os.ReadFile(filepath.Join(s.SecretEnv, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("secrets of the environment: %w", err)
		}
		more = append(more, e.Name()+"="+string(value))
	}
	return replace(s.Env, more), nil
}

// openSpec opens the Spec as the task's own processes are handed it: where a secret is in
// the environment, a file that is in memory alone.
func (h *holder) openSpec() (*os.File, error) {
	if h.spec.SecretEnv == "" {
		return os.Open(filepath.Join(h.dir, SpecFile))
	}
	handed := h.spec
	var err error
	if handed.Env, err = h.spec.environment(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(&handed)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(SpecFile, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("secrets of the environment: %w", os.NewSyscallError("memfd_create", err))
	}
	f := os.NewFile(uintptr(fd), SpecFile)
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("secrets of the environment: %w", err)
	}
	return f, nil
}

// dropSecrets removes what the task was given in memory.
func (s *Spec) dropSecrets() error {
	if s.Secrets == "" {
		return nil
	}
	return os.RemoveAll(s.Secrets)
}
