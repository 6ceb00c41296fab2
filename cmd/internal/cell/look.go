package cell

import (
	"context"

	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/status"
)

// followed is the repository of a cell as the API sees it: while this master leads,
// its loop knows what a look found.
type followed struct {
	term *term
	repo repository
}

// Look has the repository looked at now.
func (f followed) Look(ctx context.Context) (*status.Look, error) {
	return with(f.term, func(l *loop.Loop) (*status.Look, error) {
		before, _, err := l.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		looking, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { // nobody looks when this master leads no more
			select {
			case <-l.Ended():
				cancel()
			case <-looking.Done():
			}
		}()
		seen, err := f.repo.Look(looking)
		switch {
		case err != nil && ctx.Err() == nil:
			return nil, loop.ErrStopped
		case err != nil:
			return nil, err
		case seen.Trouble != nil:
			return nil, status.SourceErrorOf(seen.Trouble)
		}
		after, _, err := l.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return status.LookOf(before.Brief(), after.Brief(), seen), nil
	})
}

// Standing says how a commit stands to the head.
func (f followed) Standing(ctx context.Context, name string) (*status.Standing, error) {
	return with(f.term, func(l *loop.Loop) (*status.Standing, error) {
		s, _, err := l.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		standing := f.repo.Standing(ctx, s.Brief().Commit, name)
		return &standing, ctx.Err()
	})
}
