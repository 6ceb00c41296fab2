package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newExec(std stdio) *cobra.Command {
	var m masterFlag
	var input, tty bool
	c := &cobra.Command{
		Use:   "exec [-i] [-t] USER/JOB/INDEX [--] COMMAND [ARG…]",
		Short: "run a command in the environment of a task",
		Long: `Run a command in the namespaces and the cgroup of a running task, within its limits, as
its user, in its directory and with its environment. With --tty it has a terminal, and
without COMMAND it is a shell.

The exit code is that of the command, or 128 plus the number of the signal that ended
it. As with a shell, ssh, docker or kubectl, it is 127 when there is no such command
and 126 when it cannot be executed; the reason is printed. Errors of muster itself have
exit code 2 or 3. Signals are forwarded. Processes that the command has started are
killed when it ends, when muster exec ends, and with the task. Each run is recorded as
an event, with its user. It can be disabled with --no-exec, a flag of muster master and muster-agent.`,
		Example: `  muster exec -it search/web/0
  muster exec search/web/0 -- ls -l /
  muster exec -i search/web/0 -- sh -c 'cat >notes' <notes`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, index, err := parseWhat(args[0])
			if err != nil {
				return err
			}
			if index < 0 {
				return invalid("such as "+args[0]+"/0", "%s is a job: which of its tasks?", args[0])
			}
			command := args[1:]
			if len(command) > 0 && command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 && tty {
				command = []string{"sh"}
			}
			if len(command) == 0 {
				return invalid("such as muster exec "+args[0]+" -- ls, or muster exec -it "+args[0], "muster exec: which command?")
			}
			run := client.ExecRun{Task: args[0], Request: schema.ExecRequest{Command: command, TTY: tty}, Out: std.out, Err: std.err}
			if err := run.Request.Check(); err != nil {
				return invalid("such as muster exec "+args[0]+" -- ls; put what is long into a file", "muster exec: %w", err)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			if input {
				run.In = std.in
			}
			return runExec(cmd.Context(), cl, run, std)
		},
	}
	c.Flags().SetInterspersed(false) // what follows the task is the command's
	m.add(c)
	c.Flags().BoolVarP(&input, "stdin", "i", false, "pass stdin to the command")
	c.Flags().BoolVarP(&tty, "tty", "t", false, "allocate a terminal for the command")
	return c
}

// passedOn are the signals that are the command's.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// runExec runs the command to its end.
func runExec(ctx context.Context, cl *client.Client, run client.ExecRun, std stdio) error {
	// A signal that is passed on does not end this process, as ctx would have it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn...)
	defer signal.Stop(signals)
	run.Signals = signals
	hangup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	if run.Request.TTY {
		restore, err := takeTerminal(hangup, &run, std)
		if err != nil {
			return err
		}
		defer restore()
	}
	exit, err := cl.RunExec(hangup, run)
	switch {
	case err != nil && hangup.Err() != nil:
		return &failure{code: exitCouldNot, err: errors.New("the terminal was closed: the command is killed")}
	case err != nil:
		return err
	case exit.Signal != "":
		return &failure{code: 128 + signalNumber(exit.Signal), err: ended(exit)}
	case exit.Code < 0:
		return fmt.Errorf("how the command ended is not known: %s", cmp.Or(exit.Message, "nobody saw it"))
	case exit.Code > 0:
		return &failure{code: exit.Code, err: ended(exit)}
	}
	return nil
}

// signalNumber returns the number of a signal by the name that an exit has for it.
func signalNumber(name string) int {
	const rtMin, rtMax = 34, 64 // as a C library has them
	above := strings.TrimPrefix(name, "SIGRTMIN+")
	switch {
	case name == "SIGRTMIN":
		return rtMin
	case name == "SIGRTMAX":
		return rtMax
	case above != name:
		n, _ := strconv.Atoi(above)
		return rtMin + n
	case strings.HasPrefix(name, "signal "):
		n, _ := strconv.Atoi(strings.TrimPrefix(name, "signal "))
		return n
	}
	return int(unix.SignalNum(name))
}

// ended returns what there is to say of an end beyond its exit code.
func ended(exit schema.Exit) error {
	if exit.Message == "" {
		return nil
	}
	return errors.New(exit.Message)
}

// takeTerminal has the terminal of this process be the command's: what is typed
// is passed on as it is, ^C too, and so is the size. It returns what gives the
// terminal back.
func takeTerminal(ctx context.Context, run *client.ExecRun, std stdio) (restore func(), err error) {
	in, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, invalid("leave -t out; -i passes a pipe or a file on", "--tty: stdin is not a terminal")
	}
	fd := int(in.Fd())
	run.Request.Term = cmp.Or(os.Getenv("TERM"), "xterm")
	size := func() (s [2]int) {
		s[1], s[0], _ = term.GetSize(fd) // 0, 0: not known
		return s
	}
	now := size()
	run.Request.Rows, run.Request.Columns = now[0], now[1]
	resized := make(chan [2]int)
	run.Resized = resized
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
			}
			select {
			case <-ctx.Done():
				return
			case resized <- size():
			}
		}
	}()
	if run.In == nil {
		return func() { signal.Stop(changes) }, nil
	}
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("--tty: terminal: %w", err)
	}
	return func() {
		signal.Stop(changes)
		_ = term.Restore(fd, old) // it may be gone
	}, nil
}
