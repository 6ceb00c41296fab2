package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
)

// parallelImages bounds the images that are brought at once: the layers of one share what
// there is of network and processor.
const parallelImages = 2

// errNoImages is why no image is brought to a machine that runs no containers.
var errNoImages = errors.New("this machine runs no containers")

// bringer brings images. It belongs to Run's goroutine.
type bringer struct {
	loop   *Loop
	images Images // nil: none are brought
	log    *slog.Logger
	free   chan struct{} // has a token for each that is being brought
	kept   []string      // as was said last
}

func newBringer(l *Loop) *bringer {
	return &bringer{loop: l, images: l.cfg.Images, log: l.cfg.Log, free: make(chan struct{}, parallelImages)}
}

// turn says which images stay, and begins to bring those that are missing; done is called
// by Run's goroutine with what has come of each.
func (b *bringer) turn(ctx context.Context, t *nodeagent.Turn, done func(name string, after time.Time, err error)) {
	if b.images != nil && !slices.Equal(t.Images, b.kept) {
		b.kept = t.Images
		b.images.Keep(t.Images)
	}
	for _, name := range t.Bring {
		b.loop.workers.Go(func() {
			if after, err := b.bring(ctx, name); ctx.Err() == nil {
				b.loop.send(ctx, func() { done(name, after, err) })
			}
		})
	}
}

// bring returns when an image is here.
func (b *bringer) bring(ctx context.Context, name string) (after time.Time, err error) {
	if b.images == nil {
		return time.Time{}, errNoImages
	}
	select {
	case b.free <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	defer func() { <-b.free }()
	began := time.Now()
	if after, err = b.images.Bring(ctx, name); err != nil {
		b.log.Warn("cannot pull an image", "image", name, "err", err)
		return after, err
	}
	b.log.Info("image is here", "image", name, "seconds", time.Since(began).Round(time.Millisecond).Seconds())
	return after, nil
}
