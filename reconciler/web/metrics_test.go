package web_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
)

// counted counts how often it is asked for the cell.
type counted struct {
	*cell
	asked atomic.Int64
}

func (c *counted) Snapshot(ctx context.Context) (*status.Snapshot, <-chan struct{}, error) {
	c.asked.Add(1)
	return c.cell.Snapshot(ctx)
}

// Scrapes that follow each other fast share a count; trouble is not kept.
func TestScrapesShareACount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counted{cell: newCell(&status.Status{Cell: "local"})}
		r := newRegistry(web.NewMetrics(c))
		scrape := func() (metrics int, err error) {
			all, err := r.Gather()
			return len(all), err
		}
		first, err := scrape()
		if err != nil || first == 0 {
			t.Fatalf("%d metrics, %v", first, err)
		}
		for range 100 {
			if n, err := scrape(); n != first || err != nil {
				t.Fatalf("%d metrics, %v: want %d", n, err, first)
			}
		}
		if n := c.asked.Load(); n != 1 {
			t.Errorf("101 scrapes at once counted %d times", n)
		}
		time.Sleep(time.Second) // of the bubble's clock
		c.trouble = errors.New("nobody leads")
		if _, err := scrape(); err == nil {
			t.Error("a count that failed has metrics")
		}
		c.trouble = nil
		if n, err := scrape(); n != first || err != nil {
			t.Errorf("after trouble: %d metrics, %v: want %d", n, err, first)
		}
		if n := c.asked.Load(); n != 3 {
			t.Errorf("counted %d times, want 3", n)
		}
	})
}
