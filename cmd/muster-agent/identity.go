package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/musterhq/muster/nodeagent/credential"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/identity"
)

// identity returns what the machine shows a master elsewhere; nil for one on
// this machine.
func (f *flags) identity(dir string, damaged func(durable.Damage)) (*credential.Store, error) {
	if !f.remote {
		return nil, nil
	}
	id, err := credential.Open(credential.Config{Dir: dir, TokenFile: f.tokenFile, Cell: f.cell, Machine: f.name, Damaged: damaged})
	switch {
	case errors.Is(err, credential.ErrNone):
		return nil, usageError{fmt.Errorf("--master %s: %w", f.master, err), "create a token with `muster pki token MACHINE`, and name its file with --token-file"}
	case errors.Is(err, identity.ErrToken), errors.Is(err, credential.ErrOther):
		return nil, usageError{err, "create a token with `muster pki token MACHINE`; --cell and --name can then be left out"}
	case err != nil && f.tokenFile != "" && errors.Is(err, fs.ErrNotExist):
		return nil, usageError{err, "name the file with the machine's join token, which `muster pki token MACHINE` prints"}
	case err != nil:
		return nil, err
	}
	return id, nil
}
