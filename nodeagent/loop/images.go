package loop

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// The images and packages that are brought at once, which share what there is of network,
// processor and memory: from one registry or server, so that one that does not answer keeps
// nothing of another waiting, and in all.
const (
	registryImages = 2
	parallelImages = 8
)

// errNoImages is why nothing is brought to a machine without a store for it.
var errNoImages = errors.New("this machine has no store of images and packages")

// bringer brings images and packages. It belongs to Run's goroutine.
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

// turn says which of them stay, and begins to bring those that are missing; done is called
// by Run's goroutine with what has come of each.
func (b *bringer) turn(ctx context.Context, t *nodeagent.Turn, done func(name string, after time.Time, err error)) {
	if b.images != nil && !slices.Equal(t.Images, b.kept) {
		b.kept = t.Images
		b.images.Keep(t.Images)
	}
	for _, name := range t.Bring {
		server := schema.RegistryOf(name)
		of, from := b.of[server], t.From[name]
		if of == nil {
			of = make(chan struct{}, registryImages)
			b.of[server] = of
		}
		b.loop.workers.Go(func() {
			if after, err := b.bring(ctx, of, arrival{name, from}); ctx.Err() == nil {
				b.loop.send(ctx, func() { done(name, after, err) })
			}
		})
	}
}

// arrival is what is to be brought, and what the master says of where it may come from.
type arrival struct {
	name string
	from nodeagent.Sources
}

// bring returns when an image or a package is here; of has the tokens of its server.
func (b *bringer) bring(ctx context.Context, of chan struct{}, x arrival) (after time.Time, err error) {
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
	if after, err = b.images.Bring(ctx, x.name, x.from); err != nil {
		b.log.Warn("cannot pull an image or a package", "image", x.name, "err", err)
		return after, err
	}
	b.log.Info("image is here", "image", x.name, "seconds", time.Since(began).Round(time.Millisecond).Seconds())
	return after, nil
}
