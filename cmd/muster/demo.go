package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/demo"
)

func newDemo(std stdio) *cobra.Command {
	var keep bool
	var dir string
	c := &cobra.Command{
		Use:   "demo",
		Short: "show a whole cell doing its work on this machine, in about a minute",
		Long: `Show a whole cell doing its work on this machine, from nothing: a commit becomes
running tasks, a second one changes only what it must, what is killed comes
back, what is wrong is refused, and what is removed leaves nothing behind.

Each step checks what it says; the first that does not hold ends the demo with
exit code 3.`,
		Example: "  muster demo\n  muster demo --keep --dir /tmp/look-inside",
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			begin := time.Now()
			res, err := demo.Run(cmd.Context(), demo.Config{
				Bin: filepath.Dir(exe), Dir: dir, Keep: keep,
				Talk: std.out, Progress: progressLine(std),
			})
			if err != nil {
				return &failure{code: exitCouldNot, err: fmt.Errorf("demo: %w", err), hint: "muster demo --keep leaves its directory, with the logs of master and agent"}
			}
			fmt.Fprintf(std.out, "\nAll %d steps held, in %.0f s. From `git commit` to all of 5 new jobs running: median %d ms.\n",
				len(res.Steps), time.Since(begin).Seconds(), res.Median().Milliseconds())
			fmt.Fprintln(std.out, "Next: muster init fleet && muster dev fleet")
			return nil
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "keep the demo's directory")
	c.Flags().StringVar(&dir, "dir", "", "directory to make and work in (default: a new temporary one)")
	return c
}

// progressLine writes one line over and over on a terminal, and nothing
// elsewhere: a log has no use for it.
func progressLine(std stdio) func(string) {
	if !isTerminal(std.err) {
		return nil
	}
	const width = 100
	return func(line string) {
		if len(line) > width {
			line = line[:width-1] + "…"
		}
		if line != "" {
			line = "     " + line
		}
		fmt.Fprintf(std.err, "\r\x1b[K%s", line)
	}
}
