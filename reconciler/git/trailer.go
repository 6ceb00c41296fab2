package git

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/musterhq/muster/schema"
)

// Trailers reads those of the commits that lead from applied, which is not
// counted, to commit; those of merged branches are among them. With "" for applied, or a commit that the other does not come
// from, commit's alone count. It errs when commit cannot be read; where the
// history before it cannot, commit's alone count, too, and that is logged.
func (r *Repo) Trailers(ctx context.Context, applied, commit string) (schema.Trailers, error) {
	var out schema.Trailers
	if applied == commit {
		return out, nil
	}
	have, want := plumbing.NewHash(applied), plumbing.NewHash(commit)
	var last *object.Commit
	var between []*object.Commit
	err := r.reading(ctx, func() (err error) {
		if last, err = r.commit(want); err != nil || applied == "" || onlyChild(last, have) || r.remote != nil {
			return err
		}
		between, err = r.between(last, have)
		return err
	})
	if err == nil && applied != "" && r.remote != nil && !onlyChild(last, have) {
		between, err = r.farBetween(ctx, want, have)
	}
	if last == nil {
		return out, fmt.Errorf("repository %s: %w", r.name, err)
	}
	if err != nil {
		r.cfg.Log.Warn("cannot read the commits since the one applied: trailers are read of the newest alone",
			"repository", r.name, "commit", commit, "applied", applied, "err", err)
	}
	if !follows(between, have) {
		between, out.Alone = []*object.Commit{last}, !onlyChild(last, have)
	}
	out.Others = len(between) - 1
	brings := r.changing(ctx, between, last)
	for _, c := range between {
		if brings[c.Hash] {
			out.PromoteNew = append(out.PromoteNew, trailers(c.Message, schema.PromoteTrailer)...)
		}
		out.AllowPrune = min(out.AllowPrune, math.MaxInt-maxAllowed) + allowedBy(c.Message)
		out.Promote = append(out.Promote, trailers(c.Message, schema.PromoteTrailer)...)
		out.Ignored = append(out.Ignored, ignored(c)...)
	}
	return out, nil
}

// reading calls f while nobody else uses the repository.
func (r *Repo) reading(ctx context.Context, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.again(ctx, func() (err error) {
		defer func() { err = recovered(recover(), err) }()
		return f()
	})
}

// changing returns which of the commits have changed something, since which nothing
// has: those with the tree of the last that is not the tree of a parent. Of one whose
// parent cannot be read that is not known, and not said.
func (r *Repo) changing(ctx context.Context, commits []*object.Commit, last *object.Commit) map[plumbing.Hash]bool {
	trees, out := map[plumbing.Hash]plumbing.Hash{}, map[plumbing.Hash]bool{}
	for _, c := range commits {
		trees[c.Hash] = c.TreeHash
	}
	treeOf := func(hash plumbing.Hash) plumbing.Hash {
		if tree, ok := trees[hash]; ok {
			return tree
		}
		tree := last.TreeHash
		_ = r.reading(ctx, func() error { // what cannot be read is taken to be the same
			c, err := r.commit(hash)
			if err == nil {
				tree = c.TreeHash
			}
			return err
		})
		return tree
	}
	for _, c := range commits {
		out[c.Hash] = c.TreeHash == last.TreeHash && !slices.ContainsFunc(c.ParentHashes, func(p plumbing.Hash) bool { return treeOf(p) == c.TreeHash })
	}
	return out
}

func onlyChild(c *object.Commit, of plumbing.Hash) bool {
	return len(c.ParentHashes) == 1 && c.ParentHashes[0] == of
}

// farBetween is between for a remote, of which the store has heads alone.
func (r *Repo) farBetween(ctx context.Context, want, have plumbing.Hash) ([]*object.Commit, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	watched, w := newWire(ctx, r.remote.stall)
	defer w.close()
	commits, err := r.askBetween(watched, w, want, have)
	if err != nil {
		return nil, w.why(err)
	}
	return commits, nil
}

// between returns the commits that want comes from, itself included, and have does not, as
// far as a walk back through at most maxWalk commits shows, newest first: the ancestors of
// have are older than their children, unless clocks were wrong. r.mu is held.
func (r *Repo) between(want *object.Commit, have plumbing.Hash) ([]*object.Commit, error) {
	base, err := r.commit(have)
	if err != nil {
		return nil, err
	}
	old := map[plumbing.Hash]bool{want.Hash: false, base.Hash: true}
	var queue, out []*object.Commit
	add := func(c *object.Commit) {
		i, _ := slices.BinarySearchFunc(queue, c, func(a, b *object.Commit) int { return a.Committer.When.Compare(b.Committer.When) })
		queue = slices.Insert(queue, i, c)
	}
	add(want)
	add(base)
	young := func(c *object.Commit) bool { return !old[c.Hash] }
	for steps := 0; steps < maxWalk && slices.ContainsFunc(queue, young); steps++ {
		c := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if young(c) {
			out = append(out, c)
		}
		for _, p := range c.ParentHashes {
			was, seen := old[p]
			if seen && (was || young(c)) {
				continue
			}
			old[p] = !young(c)
			parent, err := r.commit(p)
			if err != nil {
				return nil, err
			}
			add(parent)
		}
	}
	return slices.DeleteFunc(out, func(c *object.Commit) bool { return old[c.Hash] }), nil
}

// maxAllowed bounds the number of one trailer: more tasks than any cell has.
const maxAllowed = 1_000_000_000

// allowedBy adds up the trailers that allow removals of one message. A value that
// is no number allows nothing.
func allowedBy(message string) int {
	sum := 0
	for _, value := range trailers(message, schema.AllowPruneTrailer) {
		sum = min(sum+allowed(value), maxAllowed)
	}
	return sum
}

// allowed returns how many removals one trailer allows.
func allowed(value string) int {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return min(max(n, 0), maxAllowed)
}

// maxIgnored bounds what is said of one commit.
const maxIgnored = 5

// ignored returns what of a commit's message somebody meant as a trailer, and why
// it has no effect.
func ignored(c *object.Commit) (out []string) {
	known := map[string][]string{
		schema.AllowPruneTrailer: trailers(c.Message, schema.AllowPruneTrailer),
		schema.PromoteTrailer:    trailers(c.Message, schema.PromoteTrailer),
	}
	for line := range strings.Lines(c.Message) {
		if len(out) == maxIgnored {
			break
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, name := range []string{schema.AllowPruneTrailer, schema.PromoteTrailer} {
			if !strings.EqualFold(strings.TrimSpace(key), name) {
				continue
			}
			value = strings.TrimSpace(value)
			taken := slices.Index(known[name], value)
			why := ""
			switch {
			case value == "":
				why = "it has no value"
			case taken < 0:
				why = "it is not a trailer: trailers are the last paragraph of the message, below an empty line"
			case name == schema.AllowPruneTrailer && allowed(value) == 0:
				why = "its value is not a number of tasks"
			}
			if taken >= 0 {
				known[name] = slices.Delete(known[name], taken, taken+1)
			}
			if why != "" {
				out = append(out, fmt.Sprintf("%q in the message of commit %.10s has no effect: %s", name+": "+value, c.Hash, why))
			}
		}
	}
	return out
}

// trailers returns the values of a trailer: of lines of a message's last
// paragraph, as git interpret-trailers takes them.
func trailers(message, key string) (values []string) {
	paragraphs := strings.Split(strings.TrimSpace(strings.ReplaceAll(message, "\r", "")), "\n\n")
	if len(paragraphs) < 2 {
		return nil // the subject is no trailer
	}
	for line := range strings.Lines(paragraphs[len(paragraphs)-1]) {
		k, value, _ := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); strings.EqualFold(strings.TrimSpace(k), key) && value != "" {
			values = append(values, value)
		}
	}
	return values
}
