package git

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// clockSkew is by how much the times of commits may be wrong where they end a walk
// that has seen maxWalk commits.
const clockSkew = 24 * time.Hour

// fullName is the length of a commit's name in full.
const fullName = 40

// Standing says how the commit of the given name, a hash or the beginning of one,
// stands to a head that was seen before. When that is not the newest any more, a
// look is due, and what only the newest contains is unseen. A walk through the
// history, and what a remote sends of it, are bounded: beyond, it is unknown.
func (r *Repo) Standing(ctx context.Context, head, name string) status.Standing {
	s := status.Standing{Name: name, Head: head, Is: status.StandsUnknown}
	if head != "" && strings.HasPrefix(head, name) {
		s.Is = status.StandsAtHead
		return s
	}
	var tip string
	var err error
	if r.remote != nil {
		tip, err = r.standsFar(ctx, &s)
	} else {
		tip, err = r.standsHere(ctx, &s)
	}
	s.Branch = r.branch()
	switch {
	case err != nil:
		s.Is = status.StandsUnknown
		s.Message, _ = schema.HintOf(err)
	case s.Is == status.StandsElsewhere && s.Branch == "":
		s.Message = fmt.Sprintf("commit %s is not on the branch that is followed", model.ShortCommit(name))
	case s.Is == status.StandsElsewhere:
		s.Message = fmt.Sprintf("commit %s is not on branch %s", model.ShortCommit(name), s.Branch)
	}
	if err == nil && tip != head {
		r.Poke()
	}
	return s
}

// branch returns the name of the branch that is followed, "" if it is not known.
func (r *Repo) branch() string {
	if r.cfg.Branch != "" {
		return r.cfg.Branch
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.remote != nil {
		return r.remote.followed
	}
	if r.repo == nil {
		return ""
	}
	if ref, err := r.repo.Storer.Reference(plumbing.HEAD); err == nil && ref.Type() == plumbing.SymbolicReference {
		return ref.Target().Short()
	}
	return ""
}

// standsHere finds where a commit stands in a local repository, and returns the
// newest head.
func (r *Repo) standsHere(ctx context.Context, s *status.Standing) (tip string, err error) {
	err = r.reading(ctx, func() error {
		ref, err := r.headReference()
		if err != nil {
			return err
		}
		tip = ref.Hash().String()
		hash, err := r.repo.ResolveRevision(plumbing.Revision(s.Name))
		if err != nil {
			return err
		}
		c, err := r.commit(*hash)
		if err != nil {
			return err
		}
		s.Is, err = r.stands(s.Head, c)
		if err == nil && s.Is == status.StandsElsewhere && tip != s.Head {
			if s.Is, err = r.stands(tip, c); s.Is == status.StandsContained {
				s.Is = status.StandsUnseen
			}
		}
		if errors.Is(err, errFar) { // to look again would cost as much, and find no more
			s.Message = err.Error()
			return nil
		}
		return err
	})
	if err != nil && missing(err) && tip != "" {
		s.Is = status.StandsUnseen
		return tip, nil
	}
	return tip, err
}

// headReference returns that of the branch that is followed. r.mu is held.
func (r *Repo) headReference() (*plumbing.Reference, error) {
	name := plumbing.HEAD
	if r.cfg.Branch != "" {
		name = plumbing.NewBranchReferenceName(r.cfg.Branch)
	}
	return storer.ResolveReference(r.repo.Storer, name)
}

// errFar says that a walk has come to its bound.
var errFar = fmt.Errorf("it is not among the newest %d commits, and older ones are not searched", maxWalk)

// stands reports whether head is c, descends from it, or does neither. r.mu is
// held.
func (r *Repo) stands(head string, c *object.Commit) (status.Stand, error) {
	first, err := r.commit(plumbing.NewHash(head))
	if err != nil {
		return status.StandsUnknown, errors.New("the history of the head is not there")
	}
	queue, seen := &newestFirst{first}, map[plumbing.Hash]bool{first.Hash: true}
	for queue.Len() > 0 {
		if len(seen) > maxWalk {
			if (*queue)[0].Committer.When.Before(c.Committer.When.Add(-clockSkew)) {
				break // what is left is older than c
			}
			return status.StandsUnknown, errFar
		}
		at := heap.Pop(queue).(*object.Commit)
		if at.Hash == c.Hash {
			return status.StandsContained, nil
		}
		for _, p := range at.ParentHashes {
			if p == c.Hash {
				return status.StandsContained, nil
			}
			if seen[p] {
				continue
			}
			seen[p] = true
			parent, err := r.commit(p)
			if err != nil {
				return status.StandsUnknown, errors.New("the history ends before it, as in a shallow clone")
			}
			heap.Push(queue, parent)
		}
	}
	return status.StandsElsewhere, nil
}

// newestFirst is a heap of commits.
type newestFirst []*object.Commit //nolint:recvcheck // heap.Interface wants both

func (q newestFirst) Len() int           { return len(q) }
func (q newestFirst) Less(i, j int) bool { return q[i].Committer.When.After(q[j].Committer.When) }
func (q newestFirst) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *newestFirst) Push(c any) { *q = append(*q, c.(*object.Commit)) }

// Pop implements heap.Interface.
func (q *newestFirst) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}

// standsFar finds where a commit stands in a remote, of which the store here has
// heads alone: the remote is asked for what its head has beyond that commit.
func (r *Repo) standsFar(ctx context.Context, s *status.Standing) (tip string, err error) {
	if len(s.Name) != fullName {
		return s.Head, errors.New("give the full hash: abbreviations cannot be looked up in a remote")
	}
	have := plumbing.NewHash(s.Name)
	parent := false
	if s.Head != "" && r.reading(ctx, func() error {
		c, err := r.commit(plumbing.NewHash(s.Head))
		parent = err == nil && follows([]*object.Commit{c}, have)
		return err
	}) == nil && parent { // which needs no question
		s.Is = status.StandsContained
		return s.Head, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	watched, w := newWire(ctx, r.remote.stall)
	defer w.close()
	a, err := r.askAbout(watched, w, plumbing.ZeroHash, have)
	switch {
	case err != nil:
		return "", r.remote.explain(w.why(err))
	case a.want == have:
		s.Is = status.StandsUnseen
	case !a.known:
		s.Is = status.StandsUnseen
	case !follows(a.between, have):
		s.Is = status.StandsElsewhere
	case a.want.String() != s.Head: // the head that was seen has it, or the newest alone
		s.Is = status.StandsUnseen
	default:
		s.Is = status.StandsContained
	}
	return a.want.String(), nil
}
