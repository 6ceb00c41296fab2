package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/schema"
)

// tagAnswer is what a registry says of a tag.
type tagAnswer struct {
	digest schema.Digest
	err    error
}

// maxAsked bounds how many tags are asked for at the same time.
const maxAsked = 8

// askTags asks the registries what the tags of images stand for, each once. Answers are by
// ImageRef.Tagged.
func askTags(ctx context.Context, tags *image.Tags, refs []schema.ImageRef) map[string]*tagAnswer {
	answers := map[string]*tagAnswer{}
	room := make(chan struct{}, maxAsked)
	var wg sync.WaitGroup
	for _, ref := range refs {
		if answers[ref.Tagged()] != nil {
			continue
		}
		a := &tagAnswer{}
		answers[ref.Tagged()] = a
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			a.digest, a.err = tags.Digest(ctx, ref)
		})
	}
	wg.Wait()
	return answers
}

const (
	// tagPatience is how long registries may take, all together, to say what the tags stand
	// for that a check refuses: it is help, and the check is waited for.
	tagPatience = 5 * time.Second
	// mostTags bounds how many tags a check asks for. More are a repository that was never
	// pinned, and muster image pin is what it needs.
	mostTags = 32
)

// tagHints completes diagnostics of images that have a tag and no digest.
type tagHints struct {
	offline  bool // nobody is asked
	patience time.Duration
}

// addOffline adds the flag that lets a check ask no registry.
func addOffline(c *cobra.Command, to *bool) {
	c.Flags().BoolVar(to, "offline", false, "ask no registry what a tag without a digest stands for")
}

// fill says in each of ds whose image lacks nothing but a digest which reference to write,
// or why that is not known. It changes nothing else.
func (t tagHints) fill(ctx context.Context, ds []schema.Diagnostic) {
	var refs []schema.ImageRef
	asked := map[string]bool{}
	for i := range ds {
		ref, err := schema.ParseImageTag(ds[i].Image)
		if err == nil && !asked[ref.Tagged()] && len(refs) < mostTags {
			asked[ref.Tagged()] = true
			refs = append(refs, ref)
		}
	}
	if len(refs) == 0 {
		return
	}
	var answers map[string]*tagAnswer
	why := "no registry was asked: --offline"
	if !t.offline {
		logins, err := readLogins()
		if err != nil {
			why, _ = schema.HintOf(err)
			why = "no registry was asked: " + why
		} else {
			ctx, cancel := context.WithTimeout(ctx, t.patience)
			defer cancel()
			answers = askTags(ctx, image.NewTags(image.Config{InsecureLoopback: true, Credentials: logins.Of}), refs)
			why = fmt.Sprintf("no more than %d tags are asked for", mostTags)
		}
	}
	for i := range ds {
		ref, err := schema.ParseImageTag(ds[i].Image)
		if err != nil {
			continue
		}
		if a := answers[ref.Tagged()]; a != nil {
			t.answered(&ds[i], ref, a)
		} else {
			ds[i].Hint += "; " + why
		}
	}
}

// answered completes a diagnostic with what the registry said of its image.
func (t tagHints) answered(d *schema.Diagnostic, ref schema.ImageRef, a *tagAnswer) {
	switch {
	case a.err == nil:
		ref.Digest = a.digest
		d.Expected = ref.String()
		d.Hint = "write that, or run muster image pin, which writes it"
	case errors.Is(a.err, image.ErrNotFound):
		d.Hint = fmt.Sprintf("correct the name or the tag; muster image pin then adds the digest; the registry has no such image: %v", a.err)
	case errors.Is(a.err, context.DeadlineExceeded):
		d.Hint += fmt.Sprintf("; %s did not say it within %v", ref.Registry, t.patience)
	default:
		d.Hint += fmt.Sprintf("; the registry did not say it: %v", a.err)
	}
}
