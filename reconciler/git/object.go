package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/objfile"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/musterhq/muster/schema"
)

// maxObject bounds commits and directories.
const maxObject = 64 << 20

// errTooLarge says that a blob is over the limit it was to be read with.
var errTooLarge = errors.New("too large")

// errOtherHash says that an object is damaged.
var errOtherHash = errors.New("its content does not match its hash")

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
	var damaged error
	if r.local != nil {
		data, err := r.local.loose(hash, kind, limit)
		if err == nil || errors.Is(err, errTooLarge) {
			return data, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			damaged = err // there may be a good one in a pack, or an alternate
		}
	}
	if data, err = r.stored(hash, kind, limit); err != nil && damaged != nil {
		err = damaged
	}
	return data, err
}

// stored returns an object's content as go-git finds it, held against its hash.
func (r *Repo) stored(hash plumbing.Hash, kind plumbing.ObjectType, limit int64) (data []byte, err error) {
	// Of what lies in a pack the size is known before it is read. What lies in an alternate is read
	// into memory whole.
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
		return nil, errOtherHash
	}
	return data, nil
}

// loose reads an object that has a file of its own, which is most of what is new in a repository. go-git
// would read it twice, for its size and its content, and hash it three times. The error is
// fs.ErrNotExist if there is no such file.
func (l *layout) loose(hash plumbing.Hash, kind plumbing.ObjectType, limit int64) (data []byte, err error) {
	name := hash.String()
	f, err := os.Open(filepath.Join(l.commonDir, "objects", name[:2], name[2:]))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	in, err := objfile.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	is, size, err := in.Header()
	switch {
	case err != nil:
		return nil, err
	case is != kind || size < 0:
		return nil, fmt.Errorf("it is a %s of %d bytes", is, size)
	case size > limit:
		return nil, fmt.Errorf("%d bytes, at most %d: %w", size, limit, errTooLarge)
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(in, data); err != nil {
		return nil, err
	}
	// The hash is of all that was read: what follows the content makes it another one.
	switch _, err := io.CopyN(io.Discard, in, 1); {
	case err == nil:
		return nil, errOtherHash
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	if in.Hash() != hash {
		return nil, errOtherHash
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
