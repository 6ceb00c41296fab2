package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
	"github.com/musterhq/muster/schema/sealed"
)

func newSecretRotate(std stdio) *cobra.Command {
	var ids identityFlag
	c := &cobra.Command{
		Use:   "rotate [DIR]",
		Short: "seal all secrets again, for the recipients of now",
		Long: `Seal each age file of the config repository at DIR (default: the current directory) again,
for the recipients that its cell declares now. It needs an identity that opens all of them;
if one cannot be opened, none is changed. Nothing restarts, since no plaintext changes.

What a recipient could open before stays in the history of the repository: to take a
secret from somebody, change the secret itself. SOPS files are sealed again by
sops updatekeys.`,
		Example: "  muster secret rotate fleet && git -C fleet commit -am 'secrets: without Ada'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := ids.read()
			if err != nil {
				return err
			}
			repo, err := repoAbove(cmd.Context(), operand(args))
			if err != nil {
				return err
			}
			files, err := repo.sealAgain(keys)
			if err != nil {
				return err
			}
			for _, path := range slices.Sorted(maps.Keys(files)) {
				if err := atomicfile.Write(filepath.Join(repo.root, path), []byte(files[path]), 0o644); err != nil {
					return err
				}
				screen.Printf(std.out, "%s\n", path)
			}
			screen.Printf(std.err, "%s sealed again\n", schema.Count(len(files), "secret"))
			return repo.left(files, std)
		},
	}
	ids.add(c)
	return c
}

// sealAgain returns the age files of the repository, sealed for the recipients of now.
func (r *secretRepo) sealAgain(keys sealed.Identities) (map[string]string, error) {
	out := map[string]string{}
	for path, content := range r.tree.Files {
		text := string(content.Data)
		if !strings.HasSuffix(path, ".age") && !strings.HasPrefix(text, "-----BEGIN AGE ENCRYPTED FILE-----") {
			continue
		}
		h, err := sealed.Inspect(text)
		if err != nil {
			return nil, notOpened(path, err)
		}
		of := cmp.Or(h.Owner, r.ownerOf(text))
		if of == "" {
			return nil, invalid("remove the file, or have an object of kind secret embed it", "%s: no secret has it, so it is not known whose it is", path)
		}
		cell, _, _ := strings.Cut(of, "/")
		recipients, err := r.recipientsOf(cell)
		if err != nil {
			return nil, err
		}
		plain, err := keys.Open(text)
		if err != nil {
			return nil, notOpened(path, err)
		}
		out[path], err = sealed.Seal(plain, recipients, of)
		clear(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return out, nil
}

// left says which secrets are in no age file.
func (r *secretRepo) left(files map[string]string, std stdio) error {
	done := map[string]bool{}
	for path := range files {
		done[string(r.tree.Files[path].Data)] = true
	}
	var inline []string
	for i := range r.objects.Secrets {
		switch s := &r.objects.Secrets[i]; {
		case s.SOPS != "":
			screen.Printf(std.err, "%s: a SOPS file, which sops updatekeys seals again\n", s.ID())
		case !done[s.Age]:
			inline = append(inline, s.ID())
		}
	}
	if len(inline) > 0 {
		return &failure{code: exitDiffers, err: fmt.Errorf("not sealed again, since they are written in CUE: %s", strings.Join(inline, ", ")), hint: `put each into a file and embed that: age: _ @embed(file="NAME.age", type=text)`}
	}
	return nil
}
