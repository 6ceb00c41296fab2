package main

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
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
			cl, err := m.client()
			if len(args) == 1 {
				name = args[0]
				err = cmp.Or(checkService(cmd.Context(), cl, name), err)
			}
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

// checkService errs unless s is USER/NAME. Of a name alone it says which services it could be, if cl, which may be
// nil, knows them.
func checkService(ctx context.Context, cl *client.Client, s string) error {
	_, index, err := parseWhat(s)
	if err == nil && index < 0 {
		return nil
	}
	const form = "a service is USER/NAME, such as search/front"
	if cl == nil || schema.CheckName(s) != nil {
		return invalid(form, "%q is no service", s)
	}
	list, err := cl.Services(ctx, "")
	if err != nil {
		return invalid(form, "%q is no service: it does not say of which user", s)
	}
	var of, all []string
	for i := range list {
		all = append(all, list[i].Name)
		if strings.HasSuffix(list[i].Name, "/"+s) {
			of = append(of, list[i].Name)
		}
	}
	switch {
	case len(of) > 0:
		return invalid("a service is USER/NAME: here "+someOf(of), "%q is no service: it does not say of which user", s)
	case len(all) > 0:
		return invalid("a service is USER/NAME: here "+someOf(all), "%q is no service, and none has that name", s)
	}
	return invalid(form, "%q is no service, and the cell has none", s)
}
