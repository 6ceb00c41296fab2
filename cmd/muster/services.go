package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
)

func newServices(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	wide := false
	c := &cobra.Command{
		Use:   "services [USER/NAME]",
		Short: "show the services of the cell",
		Long: `Show the services of the cell, or one: the virtual address, the ports, how many of its
endpoints are ready, and what is wrong with it.

An endpoint is a task on a machine that the selector picks, with a port that one of the
service leads to. Connections are sent to those that are ready; if none is, to all, unless
the service says whenNoneReady: "refuse". muster why service USER/NAME shows each task and
why it is an endpoint or not. The API has the same list as /v1/services.`,
		Example: "  muster services\n  muster services search/front -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				if err := checkService(args[0]); err != nil {
					return err
				}
				name = args[0]
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			list, err := cl.Services(cmd.Context(), name)
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, list)
			}
			_, err = io.WriteString(std.out, screen.Services(list, columns(std.out, wide)))
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().BoolVar(&wide, "wide", false, "all columns, in lines of any length")
	return c
}

// checkService errs unless s is USER/NAME.
func checkService(s string) error {
	if _, index, err := parseWhat(s); err != nil || index >= 0 {
		return invalid("a service is USER/NAME, such as search/front", "%q is no service", s)
	}
	return nil
}
