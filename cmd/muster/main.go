// Command muster is a cell's master and its command line.
//
// In: arguments, the environment (MUSTER_MASTER, MUSTER_CERT, MUSTER_KEY,
// MUSTER_CA), a config repository. Out:
// results on stdout, progress and errors on stderr, and an exit code: 0 yes,
// 1 differences / not converged, 2 invalid input, 3 failed. Each subcommand is one file; what they do lies in the packages below.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// stdio is where a command reads and writes, so that tests need no process.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A reader of our output that goes away is no reason to leave a cell behind:
	// writes fail then, and the command ends as it would have.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// A second signal is not waited for: it ends the process at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}
