package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
)

func newEndpoints(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var l labelFlag
	ready, wide := false, false
	c := &cobra.Command{
		Use:   "endpoints [USER/JOB | USER/JOB/INDEX | MACHINE]",
		Short: "show the addresses and ports of tasks",
		Long: `Show the addresses and ports of tasks: of the cell, a job, a task, the tasks on a machine,
or the jobs that --selector matches.

A task is ready while it runs, its health check passes, and it is not being stopped. The
others are listed with the reason. The address is the task's own, or that of its machine: the agent's
--address, or the address from which the agent connects to the master. A task that has one of
IPv4 and one of IPv6 is listed with both.

The API has the same list as /v1/endpoints, which can be watched, and as /v1/http_sd for
Prometheus.`,
		Example: `  muster endpoints search/web
  muster endpoints -l tier=front --ready -o json | jq -r '.[] | "\(.address):\(.ports.http)"'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			list, err := cl.Endpoints(cmd.Context(), l.group(args), ready)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, list)
			}
			_, err = io.WriteString(std.out, screen.Endpoints(list, columns(std.out, wide)))
			return err
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().BoolVar(&ready, "ready", false, "only those that are ready")
	c.Flags().BoolVar(&wide, "wide", false, "all columns, in lines of any length")
	return c
}
