package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/demo"
	"github.com/musterhq/muster/cmd/internal/screen"
)

func newDemo(std stdio) *cobra.Command {
	var keep bool
	var dir string
	var pause time.Duration
	c := &cobra.Command{
		Use:   "demo",
		Short: "demonstrate a whole cell on this machine, in about a minute",
		Long: `Demonstrate a whole cell on this machine: a commit becomes running tasks, a second
commit restarts only what it changes, a killed task is restarted, an invalid commit is
rejected, and a removed job leaves nothing behind.

Each step verifies what it prints; the first failure ends the demo with exit code 3.`,
		Example: "  muster demo\n  muster demo --keep --dir /tmp/look-inside",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if pause < 0 {
				return invalid("such as --pause 5s; 0 for none", "--pause %s: want 0 or more", pause)
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("pause") && isTerminal(std.out) {
				pause = readingTime
			}
			begin := time.Now()
			res, err := demo.Run(cmd.Context(), demo.Config{
				Bin: filepath.Dir(exe), Dir: dir, Keep: keep,
				Talk: std.out, Progress: progressLine(std), Pause: pause,
			})
			if err != nil {
				return &failure{code: exitCouldNot, err: fmt.Errorf("demo: %w", err), hint: "muster demo --keep leaves its directory, with the logs of master and agent"}
			}
			screen.Printf(std.out, "\nAll %d steps held, in %.0f s. From `git commit` to all of 5 new jobs running: median %d ms.\n",
				len(res.Steps), time.Since(begin).Seconds(), res.Median().Milliseconds())
			screen.Printf(std.out, "Next: muster init fleet && muster dev fleet\n")
			return nil
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep the demo's directory")
	c.Flags().DurationVar(&pause, "pause", 0, "time to read after each step (default: 3s on a terminal)")
	c.Flags().StringVar(&dir, "dir", "", "directory to create and work in (default: a new temporary one)")
	return c
}

// progressLine shows what a step waits for: on a terminal in one line that is written over
// and over, elsewhere in a line for each thing that is waited for.
func progressLine(std stdio) func(what, state string) {
	if !isTerminal(std.err) {
		last := ""
		return func(what, _ string) {
			if what != "" && what != last {
				screen.Printf(std.err, "     … until %s\n", what)
			}
			last = what
		}
	}
	const width = 100
	return func(what, state string) {
		line := []rune("     … until " + what + ": " + state)
		if what == "" {
			line = nil
		}
		screen.Printf(std.err, "\r\x1b[K%s", string(line[:min(len(line), width)]))
	}
}

// readingTime is the pause after each step for somebody who watches.
const readingTime = 3 * time.Second
