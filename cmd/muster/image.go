package main

import "github.com/spf13/cobra"

func newImage(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:     "image",
		Short:   "manage the container images that a config repository names",
		Example: "  muster image pin fleet",
	}
	c.AddCommand(newImagePin(std))
	return c
}
