package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
)

// The images that are brought at once, which share what there is of network, processor and
// memory: from one registry, so that one that does not answer keeps no image of another
// waiting, and in all.
const (
	registryImages = 2
	parallelImages = 8
)

// errNoImages is why no image is brought to a machine that runs no containers.
var errNoImages = errors.New("this machine runs no containers")

// bringer brings images. It belongs to Run's goroutine.
type bringer struct {
	loop   *Loop
	images Images // nil: none are brought
	log    *slog.Logger
	of     map[string]chan struct{} // has a token for each that is being brought from a registry,
	free   chan struct{}            // and for each at all
	kept   []string                 // as was said last
}

func newBringer(l *Loop) *bringer {
	return &bringer{loop: l, images: l.cfg.Images, log: l.cfg.Log, of: map[string]chan struct{}{}, free: make(chan struct{}, parallelImages)}
}

// turn says which images stay, and begins to bring those that are missing; done is called
// by Run's goroutine with what has come of each.
func (b *bringer) turn(ctx context.Context, t *nodeagent.Turn, done func(name string, after time.Time, err error)) {
	if b.images != nil && !slices.Equal(t.Images, b.kept) {
		b.kept = t.Images
		b.images.Keep(t.Images)
	}
	for _, name := range t.Bring {
		registry, _, _ := strings.Cut(name, "/")
		of := b.of[registry]
		if of == nil {
			of = make(chan struct{}, registryImages)
			b.of[registry] = of
		}
		b.loop.workers.Go(func() {
			if after, err := b.bring(ctx, of, name); ctx.Err() == nil {
				b.loop.send(ctx, func() { done(name, after, err) })
			}
		})
	}
}

// bring returns when an image is here; of has the tokens of its registry.
func (b *bringer) bring(ctx context.Context, of chan struct{}, name string) (after time.Time, err error) {
	if b.images == nil {
		return time.Time{}, errNoImages
	}
	for _, tokens := range []chan struct{}{of, b.free} {
		select {
		case tokens <- struct{}{}:
			defer func() { <-tokens }()
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	began := time.Now()
	if after, err = b.images.Bring(ctx, name); err != nil {
		b.log.Warn("cannot pull an image", "image", name, "err", err)
		return after, err
	}
	b.log.Info("image is here", "image", name, "seconds", time.Since(began).Round(time.Millisecond).Seconds())
	return after, nil
}
