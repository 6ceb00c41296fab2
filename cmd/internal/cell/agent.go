package cell

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// restartAgentAfter is the wait before an agent that ended is started
	// again; one that lives less than steadyAgent counts as a failed start.
	restartAgentAfter = 300 * time.Millisecond
	steadyAgent       = 10 * time.Second
	maxAgentStarts    = 10 // failed ones in a row
	// agentInvalid is the agent's exit code for input that is wrong: to start
	// it again would not help.
	agentInvalid = 2
)

// errEnded says that the agent ended though nobody stopped it.
var errEnded = errors.New("the agent ended unexpectedly")

// agentProcess is an agent that is kept running.
type agentProcess struct {
	exe    string
	args   []string
	stderr io.Writer
	log    *slog.Logger
}

// checkAgent has an agent check arguments, beside those that each one has, and errs with what it
// says of the first that is wrong.
func checkAgent(ctx context.Context, exe string, args []string) error {
	cmd := exec.CommandContext(ctx, exe, append([]string{"--check", "--cell", "any", "--master", "unix:/any", "--state-dir", "/any"}, args...)...)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err == nil {
		return nil
	}
	if !errors.As(err, &exit) || exit.ExitCode() != agentInvalid {
		return fmt.Errorf("%s --check: %w: %s", exe, err, said)
	}
	message, next, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	_, hint, _ := strings.Cut(next, ": ")
	return inputError(strings.Replace(hint, "see muster-agent ", "see muster dev ", 1), "%s", strings.TrimPrefix(message, "muster-agent: "))
}

// run keeps the agent running until ctx ends; then it has the agent stop all
// tasks and waits for that.
func (a agentProcess) run(ctx context.Context) error {
	failed := 0
	for {
		begin := time.Now()
		err := a.once(ctx)
		if ctx.Err() != nil {
			return err
		}
		if time.Since(begin) > steadyAgent {
			failed = 0
		}
		failed++
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == agentInvalid || failed == maxAgentStarts || errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s ended %d times in a row, each time within %s of its start: %w", a.exe, failed, steadyAgent, cmp.Or(err, errEnded))
		}
		a.log.Warn("the agent ended and is restarted", "err", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: nothing stopped its tasks, which run on; start the cell again to adopt them", errEnded)
		case <-time.After(restartAgentAfter):
		}
	}
}

// once runs one agent process. It ends with SIGINT, on which the agent stops
// all tasks, when ctx does. When this process is killed the kernel sends the
// agent SIGTERM, on which it leaves them running: PR_SET_PDEATHSIG is bound to
// the thread that starts the child, so that is kept.
func (a agentProcess) once(ctx context.Context) error {
	cmd := exec.Command(a.exe, a.args...) //nolint:noctx // ended by signal: its tasks must be stopped first
	cmd.Stderr = a.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return <-ended
}
