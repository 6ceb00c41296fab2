package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/cmd/internal/vendoring"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/schema"
)

func newVendor(std stdio) *cobra.Command {
	var v vendorFlags
	c := &cobra.Command{
		Use:   "vendor [DIR | DIR@VERSION | URL@VERSION]",
		Short: "bring a CUE module of others into the repository",
		Long: `Bring a CUE module into the config repository, so that many repositories share one
library: its files are written to cue.mod/pkg, and where they are from and their sum to
cue.mod/vendor.json. Both are committed, so that compiling needs no registry and no
network, also for cue itself. Packages import it by its own path.

DIR is a directory with a module, taken as it is; with @VERSION it is a git repository, as
is a URL (https, ssh, http, git). VERSION is a tag, a branch, or the whole hash of a
commit. What the module has vendored itself comes with it, unless the repository has it.
Tests and tools of the module, and files that are neither CUE nor embedded, are left out;
a module with symbolic links or submodules is refused.

Without an argument the modules are held against their sums, and those that differ are
restored from where they are from; --check only looks. --update takes what a branch or a
directory has now. muster validate and the master hold the sums too, and refuse the
packages that import a module whose files were changed.`,
		Example: "  muster vendor https://git.example/platform/lib@v1.4.0\n  muster vendor ../lib\n  muster vendor && muster validate",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := v.run(cmd.Context(), args)
			if _, ok := errors.AsType[*schema.HintedError](err); ok {
				return &failure{code: exitInvalid, err: err}
			}
			if err != nil {
				return err
			}
			return v.print(std, results)
		},
	}
	c.Flags().StringVar(&v.dir, "repo", ".", "directory of the config repository")
	c.Flags().BoolVar(&v.check, "check", false, "write nothing and fetch nothing; exit with 1 when the files of a module are not those of its sum")
	c.Flags().BoolVar(&v.update, "update", false, "take what the sources have now under the versions that were vendored")
	authFlags(c.Flags(), &v.auth)
	v.out = addOutput(c, "text", "json")
	return c
}

// vendorFlags are the flags of muster vendor.
type vendorFlags struct {
	dir           string
	check, update bool
	auth          git.Auth
	out           *outputFlag
}

// authFlags adds the flags that say who one is to a git server, and whom to trust.
func authFlags(s *pflag.FlagSet, auth *git.Auth) {
	s.StringVar(&auth.User, "git-user", "", "user name for the repository's server (default: the URL's, else x-access-token with https and git with ssh)")
	s.StringVar(&auth.TokenFile, "git-token-file", "", "file with the token or password for an https repository; read anew at each use, so it can be renewed")
	s.BoolVar(&auth.Bearer, "git-bearer", false, "send the token as a bearer token, not as the password of basic authentication")
	s.StringVar(&auth.CAFile, "git-ca-file", "", "file with the certificate authorities of https servers, in PEM (default: the system's)")
	s.StringVar(&auth.KeyFile, "git-key-file", "", "file with the private key for an ssh repository; it must not be readable by others")
	s.StringVar(&auth.PassphraseFile, "git-key-passphrase-file", "", "file with the passphrase of that key")
	s.StringVar(&auth.KnownHosts, "git-known-hosts", "", "file with the host keys of ssh servers, in known_hosts format; no other server is trusted")
}

func (v *vendorFlags) run(ctx context.Context, args []string) ([]vendoring.Result, error) {
	switch {
	case v.check && v.update, len(args) > 0 && (v.check || v.update):
		return nil, invalid("muster vendor --check looks, --update takes what all sources have now, and a source adds it", "--check, --update and a source exclude each other")
	}
	tree, err := readWorkTree(v.dir)
	if err != nil {
		return nil, err
	}
	r, err := vendoring.Open(v.dir, tree, v.auth)
	switch {
	case err != nil:
		return nil, err
	case len(args) > 0:
		source, version := vendoring.Split(args[0])
		return r.Add(ctx, source, version)
	case v.update:
		return r.Update(ctx)
	case v.check:
		return r.Check(), nil
	}
	return r.Restore(ctx)
}

// vendorResult is what muster vendor prints as JSON.
type vendorResult struct {
	Version int                `json:"version"`
	Modules []vendoring.Result `json:"modules"`
}

func (v *vendorFlags) print(std stdio, results []vendoring.Result) error {
	var differ []string
	for i := range results {
		if results[i].State == vendoring.Differs {
			differ = append(differ, results[i].Path())
		}
	}
	if v.out.value == "json" {
		if err := printJSON(std.out, vendorResult{Version: outputVersion, Modules: append([]vendoring.Result{}, results...)}); err != nil {
			return err
		}
	} else {
		for i := range results {
			r := &results[i]
			screen.Printf(std.out, "%s: %s", r.Called(), r.State)
			if r.Files > 0 {
				screen.Printf(std.out, ", %s written", schema.Count(r.Files, "file"))
			}
			screen.Printf(std.out, "\n")
		}
		if len(results) == 0 {
			screen.Printf(std.out, "no modules are vendored\n")
		}
	}
	if len(differ) > 0 {
		return &failure{code: exitDiffers, err: fmt.Errorf("the files of %s are not those that were vendored", strings.Join(differ, ", ")), hint: "muster vendor restores them"}
	}
	return nil
}
