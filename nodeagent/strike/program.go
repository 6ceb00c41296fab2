package strike

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
)

// Program writes an executable file, which a test then starts. Another process writes
// it: a child that is being started at that moment, by another test, has for a moment
// what this process has open, and a file that somebody may write to cannot be executed
// (ETXTBSY).
func Program(ctx context.Context, name string, content []byte) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `umask 022 && cat >"$0" && chmod 755 "$0"`, name)
	cmd.Stdin = bytes.NewReader(content)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write program %s: %w: %s", name, err, out)
	}
	return nil
}
