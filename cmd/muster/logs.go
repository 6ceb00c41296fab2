package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/schema"
)

func newLogs(std stdio) *cobra.Command {
	var m masterFlag
	var stream string
	r := schema.LogRequest{}
	c := &cobra.Command{
		Use:   "logs USER/JOB/INDEX",
		Short: "print what a task wrote",
		Long: `Print what a task wrote to stdout, or with --stream stderr to stderr: the newest
run of it that its machine holds. A task that ended keeps its logs for a day.`,
		Example: "  muster logs search/web/0\n  muster logs -f search/web/0 --stream stderr --tail 20",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, index, err := parseWhat(args[0])
			if err != nil {
				return err
			}
			if index < 0 {
				return invalid("muster status "+args[0]+" lists its tasks", "%q is a job: logs are of a task", args[0])
			}
			if r.Stream, err = schema.ParseLogStream(stream); err != nil {
				return invalid("want stdout or stderr", "--stream: %w", err)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			log, err := cl.Logs(cmd.Context(), args[0], r)
			if err != nil {
				return err
			}
			defer log.Close()
			if _, err := io.Copy(std.out, log); err != nil && cmd.Context().Err() == nil {
				return fmt.Errorf("log of %s: %w", args[0], err)
			}
			return nil
		},
	}
	m.add(c)
	c.Flags().BoolVarP(&r.Follow, "follow", "f", false, "go on as more is written")
	c.Flags().StringVar(&stream, "stream", "stdout", "stdout or stderr")
	c.Flags().IntVar(&r.Tail, "tail", -1, "begin with this many last lines; -1 for all")
	c.Flags().IntVar(&r.Incarnation, "incarnation", 0, "which start within the generation; 0 for the newest")
	c.Flags().Uint64Var(&r.Generation, "generation", 0, "which generation; 0 for the newest")
	return c
}
