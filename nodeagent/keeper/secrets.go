package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// dropSecrets removes what the task was given in memory.
func (s *Spec) dropSecrets() error {
	if s.Secrets == "" {
		return nil
	}
	return os.RemoveAll(s.Secrets)
}

// replace returns env with the variables of more.
func replace(env, more []string) []string {
	out := make([]string, 0, len(env)+len(more))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		kept := true
		for _, m := range more {
			kept = kept && !strings.HasPrefix(m, name+"=")
		}
		if kept {
			out = append(out, e)
		}
	}
	return append(out, more...)
}
