package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/sealed"
)

func newSecretEdit(std stdio) *cobra.Command {
	var e secretEdit
	c := &cobra.Command{
		Use:   "edit FILE",
		Short: "create or change a secret",
		Long: `Create or change the secret in an age file, with $VISUAL or $EDITOR, or from stdin when that
is no terminal. It is sealed for the recipients of its cell, and says in its header whose
it is: jobs of another user cannot use it. While an editor has it, it is in a file in
memory (tmpfs) that is removed when the editor ends. A newline at the end of a single
line is removed, unless --raw is given.

To change a file takes an identity that it is sealed for; to replace it from stdin does not.
The object of kind secret embeds the file:

  @extern(embed)
  package search
  secret: "db-password": muster.#Secret & {
    user: "search", cell: "local"
    age:  _ @embed(file="db-password.age", type=text)
  }`,
		Example: "  muster secret edit teams/search/db-password.age --user search\n  pwgen 32 1 | muster secret edit teams/search/db-password.age --user search",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.path = args[0]
			return e.run(cmd.Context(), std)
		},
	}
	c.Flags().StringVar(&e.user, "user", "", "user who owns a new secret")
	c.Flags().StringVar(&e.cell, "cell", "", "cell of a new secret (default: the only one that the repository declares)")
	c.Flags().StringArrayVar(&e.recipients, "recipient", nil, "age recipient to seal for; may be repeated (default: secrets.recipients of the cell)")
	c.Flags().BoolVar(&e.raw, "raw", false, "keep a newline at the end of a single line")
	e.ids.add(c)
	return c
}

// secretEdit is one run of edit.
type secretEdit struct {
	path, user, cell string
	recipients       []string
	raw              bool
	ids              identityFlag
}

func (e *secretEdit) run(ctx context.Context, std stdio) error {
	old, err := os.ReadFile(e.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	repo, err := repoAbove(ctx, filepath.Dir(e.path))
	if err != nil {
		return err
	}
	of, err := e.owner(repo, string(old))
	if err != nil {
		return err
	}
	cell, _, _ := strings.Cut(of, "/")
	recipients, err := parseRecipients(e.recipients)
	if err == nil && len(recipients) == 0 {
		recipients, err = repo.recipientsOf(cell)
	}
	if err != nil {
		return err
	}
	plain, changed, err := e.plaintext(ctx, std, string(old))
	defer clear(plain)
	if err != nil {
		return err
	}
	if !changed {
		screen.Printf(std.err, "%s: unchanged\n", e.path)
		return nil
	}
	if len(plain) == 0 {
		return invalid("to remove a secret, remove its object and the file", "the secret would be empty; %s is as it was", e.path)
	}
	text, err := sealed.Seal(plain, recipients, of)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(e.path, []byte(text), 0o644); err != nil {
		return err
	}
	screen.Printf(std.err, "%s: sealed for %s, %s\n", e.path, of, schema.Count(len(recipients), "recipient"))
	if old == nil {
		e.sayDeclaration(std, of)
	}
	return nil
}

// sayDeclaration says how a new file is declared.
func (e *secretEdit) sayDeclaration(std stdio, of string) {
	cell, user, _ := strings.Cut(of, "/")
	file := filepath.Base(e.path)
	name := strings.TrimSuffix(file, filepath.Ext(file))
	screen.Printf(std.err, "declare it in a CUE file in the same directory, with @extern(embed) above its package clause:\n")
	screen.Printf(std.err, "secret: %s: muster.#Secret & {user: %q, cell: %q, age: _ @embed(file=%q, type=text)}\n", schema.Label(name), user, cell, file)
}

// owner returns whose the secret is: by the flags, by what the file says, or by the object
// that has it.
func (e *secretEdit) owner(repo *secretRepo, old string) (string, error) {
	was := ""
	if old != "" {
		h, err := sealed.Inspect(old)
		if err != nil {
			return "", notOpened(e.path, err)
		}
		if was = h.Owner; was == "" {
			was = repo.ownerOf(old)
		}
	}
	cell, user, _ := strings.Cut(was, "/")
	if e.cell != "" {
		cell = e.cell
	}
	if e.user != "" {
		user = e.user
	}
	if cell == "" {
		cell = repo.onlyCell()
	}
	switch {
	case user == "":
		return "", invalid("give --user, as in --user search", "%s: whose secret is it?", e.path)
	case cell == "":
		return "", invalid("give --cell", "%s: of which cell is it?", e.path)
	}
	return cell + "/" + user, nil
}

// plaintext returns what the secret is to hold, and whether that is news.
func (e *secretEdit) plaintext(ctx context.Context, std stdio, old string) (plain []byte, changed bool, err error) {
	if f, ok := std.in.(io.Writer); !ok || !onTerminal(f) {
		plain, err = io.ReadAll(io.LimitReader(std.in, sealed.MaxPlain+2))
		return e.trimmed(plain), true, err
	}
	var before []byte
	if old != "" {
		ids, err := e.ids.read()
		if err != nil {
			return nil, false, err
		}
		if before, err = ids.Open(old); err != nil {
			return nil, false, notOpened(e.path, err)
		}
	}
	defer clear(before)
	after, err := inEditor(ctx, std, before)
	if err != nil {
		return nil, false, err
	}
	plain = e.trimmed(after)
	return plain, old == "" || !bytes.Equal(before, plain), nil
}

// trimmed returns a single line without its end.
func (e *secretEdit) trimmed(plain []byte) []byte {
	if i := bytes.IndexByte(plain, '\n'); !e.raw && i >= 0 && i == len(plain)-1 {
		return plain[:i]
	}
	return plain
}

// inEditor has the user change a text, in a file in memory that is gone when it returns.
func inEditor(ctx context.Context, std stdio, text []byte) ([]byte, error) {
	editor := os.Getenv("VISUAL")
	if editor == "" {
		editor = os.Getenv("EDITOR")
	}
	if editor == "" {
		return nil, invalid("set EDITOR, or give the secret on stdin", "there is no editor: neither VISUAL nor EDITOR is set")
	}
	dir, err := inMemory()
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "/bin/sh", "-c", editor+` "$1"`, "sh", path) //nolint:gosec // the user's own editor
	c.Stdin, c.Stdout, c.Stderr = std.in, std.out, std.err
	if err := c.Run(); err != nil {
		return nil, invalid("nothing was changed", "editor %s: %w", editor, err)
	}
	return os.ReadFile(path)
}

// inMemory makes a directory in a file system without a disk.
func inMemory() (string, error) {
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/run"} {
		var fsys unix.Statfs_t
		if base == "" || unix.Statfs(base, &fsys) != nil || fsys.Type != unix.TMPFS_MAGIC && fsys.Type != unix.RAMFS_MAGIC {
			continue
		}
		if dir, err := os.MkdirTemp(base, "muster-secret-"); err == nil {
			return dir, nil
		}
	}
	return "", invalid("give the secret on stdin", "there is no directory in memory for the editor's file: neither XDG_RUNTIME_DIR nor /dev/shm is a tmpfs")
}
