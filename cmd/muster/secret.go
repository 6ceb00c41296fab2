package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/sops"
)

func newSecret(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:   "secret",
		Short: "edit the secrets of a config repository",
		Long: `Edit the secrets of a config repository. Each is an age file that an object of kind
secret embeds, sealed for the recipients that the cell declares in secrets.recipients: those of
the identity that the cell's masters have (--secret-identity), and of people who may read it.`,
		Example: `  muster secret keys --new ~/.config/muster/identity
  muster secret edit fleet/teams/search/db-password.age --user search
  muster secret show fleet/teams/search/db-password.age
  muster secret rotate fleet`,
	}
	c.AddCommand(newSecretEdit(std), newSecretShow(std), newSecretRotate(std), newSecretKeys(std))
	return c
}

// identityFlag is the flag for files of identities.
type identityFlag struct{ paths []string }

func (f *identityFlag) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.paths, "identity", nil, "file of age identities that open secrets; may be repeated (default: muster/identity in the user's configuration directory)")
}

// read returns the identities of all files; without the flag, none if there is no file.
func (f *identityFlag) read() (sealed.Identities, error) {
	paths := f.paths
	if len(paths) == 0 {
		base, err := os.UserConfigDir()
		if err != nil {
			return sealed.Identities{}, invalid("give --identity", "no directory for identities: %w", err)
		}
		paths = []string{filepath.Join(base, "muster", "identity")}
	}
	var text []byte
	for _, path := range paths {
		b, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && len(f.paths) == 0:
			return sealed.Identities{}, nil
		case err != nil:
			return sealed.Identities{}, invalid("muster secret keys --new FILE makes one", "identities: %w", err)
		}
		text = append(append(text, b...), '\n')
	}
	defer clear(text)
	ids, err := sealed.ParseIdentities(text)
	if err != nil {
		return sealed.Identities{}, hinted(fmt.Errorf("%s: %w", strings.Join(paths, ", "), err))
	}
	return ids, nil
}

// hinted returns err as a mistake of the input, with its hint.
func hinted(err error) error {
	message, hint := schema.HintOf(err)
	return &failure{code: exitInvalid, err: errors.New(message), hint: hint}
}

// notOpened says why a file was not opened.
func notOpened(path string, err error) error {
	if errors.Is(err, sealed.ErrNotFor) {
		return invalid("name the file of an identity that it is sealed for with --identity", "%s: %w", path, err)
	}
	message, hint := schema.HintOf(err)
	return &failure{code: exitInvalid, err: fmt.Errorf("%s: %s", path, message), hint: hint}
}

func newSecretShow(std stdio) *cobra.Command {
	var ids identityFlag
	var key string
	c := &cobra.Command{
		Use:   "show FILE",
		Short: "print a secret in clear",
		Long: `Print what an age file, or a SOPS file, holds. It needs an identity that the file is sealed
for, and goes to stdout as it is, without a newline of its own.`,
		Example: "  muster secret show teams/search/db-password.age\n  muster secret show --key db.password teams/search/db.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			keys, err := ids.read()
			if err != nil {
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return invalid("muster secret edit FILE makes one", "%w", err)
			}
			open := func() ([]byte, error) { return keys.Open(string(text)) }
			if sops.Inspect(string(text)) == nil {
				open = func() ([]byte, error) { return sops.Open(string(text), key, keys.Open) }
			} else if key != "" {
				return invalid("an age file holds one secret", "--key is for SOPS files")
			}
			plain, err := open()
			if err != nil {
				return notOpened(args[0], err)
			}
			_, err = std.out.Write(plain)
			return err
		},
	}
	c.Flags().StringVar(&key, "key", "", "path of the value in a SOPS file, such as db.password (default: the whole document)")
	ids.add(c)
	return c
}

func newSecretKeys(std stdio) *cobra.Command {
	var create bool
	c := &cobra.Command{
		Use:   "keys FILE",
		Short: "print the recipients of a file of identities",
		Long: `Print the recipients of the age identities in FILE, one a line. They are public: a cell
declares them in secrets.recipients. With --new the file is created, with a new identity;
who has it can read all secrets that are sealed for it.`,
		Example: "  muster secret keys --new /etc/muster/identity\n  muster secret keys ~/.config/muster/identity",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if create {
				if err := writeIdentity(args[0]); err != nil {
					return err
				}
			}
			ids, err := (&identityFlag{paths: args}).read()
			if err != nil {
				return err
			}
			for _, r := range ids.Recipients() {
				screen.Printf(std.out, "%s\n", r)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&create, "new", false, "create FILE with a new identity; it must not exist")
	return c
}

// writeIdentity creates a file with a new identity.
func writeIdentity(path string) error {
	secret, _, err := sealed.NewIdentity()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return invalid("leave out --new to see its recipients, or name another file", "%s exists", path)
	}
	return atomicfile.Write(path, []byte(secret+"\n"), 0o600)
}

// secretRepo is what a config repository says about secrets.
type secretRepo struct {
	root    string
	tree    schema.Tree
	objects schema.Objects
}

// repoAbove returns the config repository that the directory dir is in.
func repoAbove(ctx context.Context, dir string) (*secretRepo, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for at := root; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "cue.mod")); err == nil {
			root = at
			break
		}
		if at == filepath.Dir(at) {
			return nil, invalid("name a file in a config repository; muster init DIR writes one", "%s is in no config repository", dir)
		}
	}
	c, err := compileRepo(ctx, root, "", reconciler.Take)
	if err != nil {
		return nil, err
	}
	return &secretRepo{root, c.tree, c.objects}, nil
}

// ownerOf returns whose the ciphertext is, by the objects that have it; "" if none has.
func (r *secretRepo) ownerOf(text string) string {
	for i := range r.objects.Secrets {
		if s := &r.objects.Secrets[i]; s.Age == text {
			return s.Owner()
		}
	}
	return ""
}

// recipientsOf returns for whom secrets of a cell are sealed.
func (r *secretRepo) recipientsOf(cell string) ([]sealed.Recipient, error) {
	i := slices.IndexFunc(r.objects.Cells, func(c schema.Cell) bool { return c.Name == cell })
	if i < 0 || r.objects.Cells[i].Secrets == nil {
		return nil, invalid(`declare them, as in cell: `+schema.Label(cmp.Or(cell, "NAME"))+`: secrets: recipients: ["age1…"], or give --recipient`, "cell %q declares no secrets.recipients", cell)
	}
	return parseRecipients(r.objects.Cells[i].Secrets.Recipients)
}

func parseRecipients(texts []string) ([]sealed.Recipient, error) {
	var out []sealed.Recipient
	for _, text := range texts {
		recipient, err := sealed.ParseRecipient(text)
		if err != nil {
			return nil, hinted(err)
		}
		out = append(out, recipient)
	}
	return out, nil
}

// onlyCell returns the name of the only cell; "" if there are several, or none.
func (r *secretRepo) onlyCell() string {
	if len(r.objects.Cells) != 1 {
		return ""
	}
	return r.objects.Cells[0].Name
}
