package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/schema"
)

func newWhy(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:     "why USER/JOB[/INDEX]",
		Short:   "tell why a job or a task is as it is",
		Example: "  muster why search/web\n  muster why search/web/3 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			job, index, err := parseWhat(args[0])
			if err != nil {
				return err
			}
			why, err := cl.Why(cmd.Context(), job, index)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, why)
			}
			for _, line := range why.Lines() {
				fmt.Fprintln(std.out, line)
			}
			return nil
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	return c
}

// parseWhat parses USER/JOB or USER/JOB/INDEX; index is -1 for a job.
func parseWhat(s string) (job string, index int, err error) {
	parts := strings.Split(s, "/")
	index = -1
	if len(parts) == 3 {
		if index, err = schema.ParseIndex(parts[2]); err != nil {
			return "", 0, invalid("a task is USER/JOB/INDEX, such as search/web/0", "%q: %w", s, err)
		}
		parts = parts[:2]
	}
	if len(parts) != 2 {
		return "", 0, invalid("a job is USER/JOB, a task USER/JOB/INDEX, such as search/web/0", "%q is neither a job nor a task", s)
	}
	for _, p := range parts {
		if err := schema.CheckName(p); err != nil {
			return "", 0, invalid("a job is USER/JOB, a task USER/JOB/INDEX, such as search/web/0", "%q: %w", s, err)
		}
	}
	return parts[0] + "/" + parts[1], index, nil
}
