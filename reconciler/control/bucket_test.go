package control

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// slowBucket is a token bucket as it is documented: so many tokens, and one more every
// so often while it is not full.
type slowBucket struct {
	every  time.Duration
	burst  int
	tokens int
	since  time.Duration // that the next token has been growing
}

func (b *slowBucket) pass(d time.Duration) {
	for ; d > 0 && b.tokens < b.burst; d -= time.Millisecond {
		if b.since += time.Millisecond; b.since == b.every {
			b.tokens, b.since = b.tokens+1, 0
		}
	}
}

func (b *slowBucket) take() bool {
	if b.tokens == 0 {
		return false
	}
	if b.tokens == b.burst {
		b.since = 0
	}
	b.tokens--
	return true
}

// TestBucket holds the bucket, of which only one time is kept, against one that
// counts.
func TestBucket(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(1, 50).Draw(t, "every")) * time.Millisecond
		burst := rapid.IntRange(1, 10).Draw(t, "burst")
		b, slow := bucket{every: every, burst: burst}, &slowBucket{every: every, burst: burst, tokens: burst}
		now, full := time.Unix(1_000_000, 0), time.Time{}
		for range rapid.IntRange(1, 100).Draw(t, "turns") {
			d := time.Duration(rapid.IntRange(0, 80).Draw(t, "pass")) * time.Millisecond
			now = now.Add(d)
			slow.pass(d)
			next, ready := b.take(full, now)
			got, want := !ready.After(now), slow.take()
			if got != want {
				t.Fatalf("a token is taken: %t, and the bucket that counts says %t", got, want)
			}
			if got {
				full = next
				continue
			}
			if _, again := b.take(full, ready); again.After(ready) {
				t.Fatalf("a token was to be there at %s, and is at %s", ready, again)
			}
		}
	})
}

// TestBucketClock: a clock that goes back never makes a bucket worse than empty.
func TestBucketClock(t *testing.T) {
	t.Parallel()
	b := bucket{every: time.Second, burst: 5}
	now := time.Unix(1_000_000, 0)
	full := now.Add(24 * time.Hour) // by a clock that was a day ahead
	next, ready := b.take(full, now)
	if want := now.Add(time.Second); !ready.Equal(want) {
		t.Errorf("the next token is there at %s, want %s", ready, want)
	}
	if want := now.Add(5 * time.Second); !next.Equal(want) {
		t.Errorf("full at %s, want %s", next, want)
	}
	if _, again := b.take(next, ready); again.After(ready) {
		t.Errorf("the token that was to be there at %s is there at %s", ready, again)
	}
}
