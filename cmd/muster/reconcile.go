package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
)

func newReconcile(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "reconcile",
		Short: "have the master poll its repository now",
		Long: `Have the master poll its repository now, and print what it found. A muster wait or
muster status afterwards takes everything into account that was pushed before. It does
not wait until the commit is applied, and does not change the desired state.

Exits 3 when the repository cannot be read, and says why.`,
		Example: "  git push && muster reconcile && muster wait",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if timeout <= 0 {
				return invalid("such as --timeout 2m", "--timeout %s: want more than 0", timeout)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			l, err := cl.Reconcile(ctx)
			switch {
			case err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
				return &failure{
					code: exitCouldNot, err: fmt.Errorf("the poll of the repository has not finished after %s; it continues", timeout),
					hint: "give a longer --timeout; muster status shows what is known of the repository",
				}
			case err != nil:
				return err
			case out.value == "json":
				return printJSON(std.out, l)
			}
			if l.Suspended && l.Applied != l.Commit {
				screen.Printf(std.err, "hint: muster resume all\n")
			}
			err = screen.Fprintf(std.out, "%s\n", l)
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the poll")
	return c
}
