package main

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/forge"
	"github.com/musterhq/muster/cmd/internal/screen"
)

// maxComment is how much is taken for a comment, in bytes; forges take less.
const maxComment = 1 << 20

func newComment(std stdio) *cobra.Command {
	var name, author string
	c := &cobra.Command{
		Use:   "comment FORGE",
		Short: "keep one comment in a pull request up to date, from CI",
		Long: `Keep one comment in a pull request up to date, from a CI job for it: the comment gets the
Markdown that comes on stdin. FORGE is github, gitea, forgejo or gitlab. The repository and
the number of the pull request are what the forge's CI has in the environment, and
MUSTER_COMMENT_TOKEN is a token that may write comments: that of the job, but on GitLab,
where that may not, a project access token.

A comment counts as the one of --name if it begins with its mark, which readers do not see,
and is by the author that comments of the CI are by; those of others are left alone. In a job
that is for no pull request nothing is done.`,
		Example: `  muster plan origin/main...HEAD -o markdown | muster comment github --name plan`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name == "" || strings.ContainsAny(name, "\r\n<>") {
				return invalid("such as --name plan", "--name %q: want a word or a few", name)
			}
			t, has, err := forge.From(forge.Kind(args[0]), author, os.Getenv)
			if err != nil {
				return &failure{code: exitInvalid, err: err}
			}
			if !has {
				err := screen.Fprintf(std.out, "this job is for no pull request: no comment\n")
				return err
			}
			text, err := io.ReadAll(io.LimitReader(std.in, maxComment+1))
			if err != nil {
				return err
			}
			if len(text) > maxComment || len(text) == 0 {
				return &failure{code: exitInvalid, err: errors.New("stdin: want 1 byte to 1 MiB of Markdown")}
			}
			made, err := t.Put(cmd.Context(), name, string(text))
			if err != nil {
				return err
			}
			did := "is up to date"
			if made {
				did = "is made"
			}
			err = screen.Fprintf(std.out, "the comment %s %s\n", name, did)
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "plan", "which comment it is")
	c.Flags().StringVar(&author, "author", "", "who the comments of the CI are by (default: github-actions[bot], gitea-actions, forgejo-actions; on gitlab the owner of the token)")
	return c
}
