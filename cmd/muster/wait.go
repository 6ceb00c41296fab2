package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
)

func newWait(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var timeout time.Duration
	var commit string
	c := &cobra.Command{
		Use:   "wait",
		Short: "wait until the cell is as its repository says",
		Long: `Wait until the cell has converged: the newest commit is applied, nothing of it is
stale or rejected, and all runs as it says. Exits 1 when that takes longer than
--timeout, and says what stands in the way.`,
		Example: `  git commit -am "scale up" && muster wait --commit "$(git rev-parse HEAD)" --timeout 2m`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			var s *reconciler.Status
			var version uint64
			done := false
			for !done && ctx.Err() == nil {
				next, v, err := cl.Status(ctx, version, 10*time.Second)
				if err != nil {
					if ctx.Err() != nil {
						break
					}
					return err
				}
				s, version = next, v
				done = s.Converged && (commit == "" || strings.HasPrefix(s.Applied, commit))
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if s == nil {
				return &failure{code: exitDiffers, err: fmt.Errorf("no answer from the master within %s", timeout)}
			}
			if out.value == "json" {
				err = printJSON(std.out, s)
			} else {
				err = printWaited(std, s, done)
			}
			if err == nil && !done {
				err = &failure{code: exitDiffers}
			}
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait")
	c.Flags().StringVar(&commit, "commit", "", "wait until this commit is the one applied")
	return c
}

func printWaited(std stdio, s *reconciler.Status, done bool) error {
	if done {
		_, err := fmt.Fprintf(std.out, "cell %s has converged at %s\n", s.Cell, short(s.Applied))
		return err
	}
	fmt.Fprintf(std.err, "muster: cell %s has not converged: head %s, applied %s: %s\n", s.Cell, short(s.Commit), short(s.Applied),
		cmp.Or(strings.Join(s.Waiting, "; "), "the commit waited for is not the head"))
	_, err := fmt.Fprintln(std.err, "hint: muster status tells more")
	return err
}
