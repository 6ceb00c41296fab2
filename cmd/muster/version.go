package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// version is stamped by the Makefile.
var version = "devel"

// versionLine is what muster version and muster --version print.
func versionLine() string {
	return fmt.Sprintf("muster %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func newVersion(std stdio) *cobra.Command {
	var out *outputFlag
	c := &cobra.Command{
		Use:     "version",
		Short:   "print the version",
		Example: "  muster version -o json",
		RunE: func(*cobra.Command, []string) error {
			if out.value == "json" {
				return printJSON(std.out, struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"`
				}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			_, err := io.WriteString(std.out, versionLine())
			return err
		},
	}
	out = addOutput(c, "text", "json")
	return c
}
