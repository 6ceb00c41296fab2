package git

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/musterhq/muster/schema"
)

// maxObject bounds commits and directories.
const maxObject = 64 << 20

// errTooLarge says that a blob is over the limit it was to be read with.
var errTooLarge = errors.New("too large")

// read returns an object's content, held against its hash. r.mu is held.
func (r *Repo) read(hash plumbing.Hash, kind plumbing.ObjectType, limit int64) (data []byte, err error) {
	defer func() {
		if err != nil && !errors.Is(err, errTooLarge) {
			what := "is damaged"
			if missing(err) {
				what = "is missing"
			}
			err = schema.Hintf("`git fsck` in the repository shows details; push or fetch it again from a good clone", "%s %s %s: %w", kind, hash, what, err)
		}
	}()
	defer func() { err = recovered(recover(), err) }()
	// The size comes first: an object is read into memory whole. It is not
	// known of what lies in an alternate.
	size, err := r.repo.Storer.EncodedObjectSize(hash)
	if err != nil && !missing(err) {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", size, limit, errTooLarge)
	}
	obj, err := r.repo.Storer.EncodedObject(kind, hash)
	if err != nil {
		return nil, err
	}
	if obj.Size() > limit {
		return nil, fmt.Errorf("%d bytes, at most %d: %w", obj.Size(), limit, errTooLarge)
	}
	in, err := obj.Reader()
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(in)
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	if plumbing.ComputeHash(kind, data) != hash {
		return nil, errors.New("its content does not match its hash")
	}
	return data, nil
}

// commit reads a commit.
func (r *Repo) commit(hash plumbing.Hash) (*object.Commit, error) {
	data, err := r.read(hash, plumbing.CommitObject, maxObject)
	if err != nil {
		return nil, fmt.Errorf("repository %s: %w", r.name, err)
	}
	var c object.Commit
	if err := c.Decode(memoryObject(plumbing.CommitObject, data)); err != nil {
		return nil, fmt.Errorf("repository %s: commit %s: %w", r.name, hash, err)
	}
	return &c, nil
}

// entries reads a directory.
func (r *Repo) entries(hash plumbing.Hash) ([]object.TreeEntry, error) {
	data, err := r.read(hash, plumbing.TreeObject, maxObject)
	if err != nil {
		return nil, err
	}
	var t object.Tree
	if err := t.Decode(memoryObject(plumbing.TreeObject, data)); err != nil {
		return nil, fmt.Errorf("tree %s: %w", hash, err)
	}
	return t.Entries, nil
}

func memoryObject(kind plumbing.ObjectType, data []byte) *plumbing.MemoryObject {
	obj := &plumbing.MemoryObject{}
	obj.SetType(kind)
	if _, err := obj.Write(data); err != nil {
		panic(err) // memory takes everything
	}
	return obj
}
