package readme

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// How long a tour, a terminal's first line and a terminal's end may take.
const (
	tourTime  = 5 * time.Minute
	startTime = 60 * time.Second
	endTime   = 30 * time.Second
)

// tour is one run through the blocks of the same name.
type tour struct {
	dir       string // where the first block starts
	home      string
	bin       string // in the PATH before the system's; "" for none
	network   string // file of the network namespace in which all is run; "" is that of the test
	address   string // of the newest terminal
	terminals []*terminal
}

// terminal is a block that runs beside its tour.
type terminal struct {
	line int
	// silent is one whose program need not know SIGINT, which muster's do.
	silent bool
	cmd    *exec.Cmd
	done   chan error
	out    *output
}

// output keeps what a process wrote.
type output struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// run runs the blocks of the tour, each after the one before has ended.
// Its error names the line of the block that did not hold.
func (t *tour) run(ctx context.Context, blocks []block) error {
	ctx, cancel := context.WithTimeout(ctx, tourTime)
	defer cancel()
	err := t.blocks(ctx, blocks)
	for _, term := range t.terminals {
		err = errors.Join(err, term.end())
	}
	return err
}

// blocks runs all blocks. Those of the tour's own shell share one state: each
// starts in the directory and with the variables that the last one ended with.
func (t *tour) blocks(ctx context.Context, blocks []block) error {
	for _, b := range blocks {
		var err error
		if b.terminal != "" {
			err = t.start(ctx, b)
		} else {
			err = t.shell(ctx, b)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", b.line, err)
		}
	}
	return nil
}

// command returns a shell that runs text with the tour's environment.
func (t *tour) command(ctx context.Context, text string) *exec.Cmd {
	line := []string{"/bin/sh", "-eu", "-c", text}
	if t.network != "" {
		line = append([]string{"nsenter", "--net=" + t.network, "--"}, line...)
	}
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Dir = t.dir
	c.Env = []string{
		"HOME=" + t.home, "TMPDIR=" + os.TempDir(), "LANG=C.UTF-8",
		"PATH=" + strings.TrimPrefix(t.bin+":"+os.Getenv("PATH"), ":"), // git and the system's programs
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
	}
	// A group of its own, so that all that it started can be ended with it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	return c
}

// interrupted is the status of a shell whose command SIGINT has ended.
const interrupted = 128 + int(syscall.SIGINT)

// prelude takes up the state that the last block left; it is the same in a new
// terminal, but for the directory.
// A shell that is interrupted waits for its command, as an interactive one does.
const (
	interrupt = "trap : INT\n"
	prelude   = `if [ -e "$HOME/.tour" ]; then . "$HOME/.tour"; fi` + "\n"
	directory = `if [ -e "$HOME/.tour.cwd" ]; then cd "$(cat "$HOME/.tour.cwd")"; fi` + "\n"
	epilogue  = "\n" + `export -p > "$HOME/.tour"; pwd > "$HOME/.tour.cwd"` + "\n"
)

// shell runs b in the tour's own shell.
func (t *tour) shell(ctx context.Context, b block) error {
	text := b.text
	if t.address != "" {
		text = strings.ReplaceAll(text, "ADDRESS", t.address)
	}
	if b.fails == 0 {
		text += epilogue
	}
	c := t.command(ctx, prelude+directory+text)
	var out output
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	status := c.ProcessState.ExitCode()
	if ctx.Err() != nil {
		return fmt.Errorf("%w\n%s", ctx.Err(), &out)
	}
	if status != b.fails {
		return fmt.Errorf("exit status %d, want %d (%w)\n%s", status, b.fails, err, &out)
	}
	if line := missing(b.shows, out.String()); line != "" {
		return fmt.Errorf("it does not show %q\n%s", line, &out)
	}
	return nil
}

// address is at the end of the line with which a terminal says where it answers.
var address = regexp.MustCompile(` at (\S+:\S+)\s*$`)

// start starts b beside the tour and waits for its first line.
func (t *tour) start(ctx context.Context, b block) error {
	// Not ended with the tour: a cell that is killed leaves its tasks behind.
	c := t.command(context.WithoutCancel(ctx), prelude+interrupt+b.text)
	pipe, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	term := &terminal{line: b.line, silent: b.silent, cmd: c, done: make(chan error, 1), out: &output{}}
	c.Stderr = term.out
	if err := c.Start(); err != nil {
		return err
	}
	t.terminals = append(t.terminals, term)
	first := make(chan string, 1)
	go func() {
		r := bufio.NewReader(pipe)
		line, _ := r.ReadString('\n') // an early end is reported by done
		first <- line
		_, _ = io.Copy(term.out, r)
		term.done <- c.Wait()
	}()
	if b.silent {
		return nil
	}
	select {
	case line := <-first:
		m := address.FindStringSubmatch(line)
		if m == nil {
			return fmt.Errorf("its first line is %q, want an address at its end\n%s", line, term.out)
		}
		t.address = m[1]
		return nil
	case <-time.After(startTime):
		return fmt.Errorf("no line within %s\n%s", startTime, term.out)
	}
}

// end sends SIGINT to all that the terminal runs, as Ctrl-C does, and waits.
func (t *terminal) end() error {
	if err := syscall.Kill(-t.cmd.Process.Pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("line %d: %w", t.line, err)
	}
	select {
	case err := <-t.done:
		if t.silent && t.cmd.ProcessState.ExitCode() == interrupted {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: ended with %w after SIGINT\n%s", t.line, err, t.out)
		}
		return nil
	case <-time.After(endTime):
		kill := syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL)
		return errors.Join(fmt.Errorf("line %d: still runs %s after SIGINT\n%s", t.line, endTime, t.out), kill)
	}
}
