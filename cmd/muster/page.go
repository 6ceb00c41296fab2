package main

import (
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
)

func newPage(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:   "page",
		Short: "print a URL of the status page for a browser",
		Long: `Print a URL of the status page for a browser on the master's machine. It contains a
password that is valid for 12 hours, for this page only, and for the user whose browser
opens it first.

A browser of root, or of a user given by --allow-user of the master, needs no password:
the kernel identifies the user of the connection. Over TLS a browser needs a client
certificate.`,
		Example: "  muster page",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			a, err := cl.Page(cmd.Context())
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, a)
			}
			err = screen.Fprintf(std.out, "%s\n", a.URL)
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	return c
}
