package main

import (
	"context"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/lsp"
	"github.com/musterhq/muster/cmd/internal/screen"
)

func newLSP(std stdio) *cobra.Command {
	var cue string
	c := &cobra.Command{
		Use:   "lsp",
		Short: "serve an editor with the mistakes in config repositories",
		Long: `Serve an editor over the Language Server Protocol, on stdin and stdout: the editor shows
what muster validate finds, in all files of the repository, while one types and when a file
is saved. Only packages that changed are compiled again. A package that takes long is checked
when nothing is typed for a while, or on save, and keeps no other from being checked.

All else, such as completion, definitions and formatting, is passed to cue lsp, if there
is a program cue of version 0.16 or newer; its own diagnostics of config repositories are left out.
docs/editors.md says how editors are set up.`,
		Example: "  muster lsp\n  muster lsp --cue ~/go/bin/cue",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return lsp.Serve(cmd.Context(), lsp.Config{
				In: std.in, Out: std.out, Log: std.err, Version: version,
				Other: otherServer(cmd.Context(), std, cue),
				Read:  readWorkTree, Check: editorChecks{}.check,
			})
		},
	}
	c.Flags().StringVar(&cue, "cue", "cue", `program that has "lsp", for all that is not about mistakes; "" for none`)
	return c
}

// otherServer returns the command of CUE's language server, nil if there is none.
func otherServer(ctx context.Context, std stdio, program string) []string {
	if program == "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, program, "help", "lsp").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "cue lsp") {
		screen.Printf(std.err, "muster: %s has no lsp: only mistakes are shown, without completion and the like\n", program)
		return nil
	}
	return []string{program, "lsp"}
}
