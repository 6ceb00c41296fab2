package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newPage(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	c := &cobra.Command{
		Use:   "page",
		Short: "print an address at which a browser sees the status page",
		Long: `Print an address at which a browser on the master's machine sees the status page. It
holds a password, which is good for 12 hours, for the page alone, and for the user
whose browser shows it first.

A browser of root, or of a user that --allow-user of the master names, needs none:
the kernel says whose it is. Over TLS a browser shows a certificate.`,
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
			_, err = fmt.Fprintln(std.out, a.URL)
			return err
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	return c
}
