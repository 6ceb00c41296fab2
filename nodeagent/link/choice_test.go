package link

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/schema/linkpb"
)

// TestRank: machines spread evenly over masters, in orders that do not depend on that in
// which the masters are given; those of one that goes spread over the others, and no
// other machine moves.
func TestRank(t *testing.T) {
	t.Parallel()
	masters := []string{"master-1:7421", "master-2:7421", "master-3:7421"}
	first, second := map[string]int{}, map[string]int{}
	const machines = 3000
	for i := range machines {
		m := fmt.Sprint("m-", i)
		order := rank(m, masters)
		first[order[0]]++
		if order[0] == masters[0] {
			second[order[1]]++
		}
		if again := rank(m, []string{masters[2], masters[0], masters[1]}); !slices.Equal(order, again) {
			t.Fatalf("machine %s: order %q, and %q of the same masters", m, order, again)
		}
		if left := rank(m, masters[1:]); !slices.Equal(left, slices.DeleteFunc(order, func(x string) bool { return x == masters[0] })) {
			t.Fatalf("machine %s: order %q without the first master", m, left)
		}
	}
	for master, n := range first {
		if n < machines/4 || n > machines*5/12 {
			t.Errorf("%d of %d machines are with %s", n, machines, master)
		}
	}
	if len(second) != 2 || slices.Min(slices.Collect(maps.Values(second))) < machines/3/4 {
		t.Errorf("the machines of one that goes: %v", second)
	}
}

// TestReturn: a machine is with the next master while its first choice takes nobody, and
// returns when that does.
func TestReturn(t *testing.T) {
	t.Parallel()
	var masters []string
	back, sessions := make(chan struct{}), make(chan string)
	for range 2 {
		var own string
		own = serve(t, func(stream linkpb.Link_SessionServer) error {
			name := "the second choice"
			if rank("m1", masters)[0] == own {
				name = "the first choice"
				select {
				case <-back:
				default:
					return status.Error(codes.Unavailable, "it does not lead")
				}
			}
			if err := stream.Send(welcome(1)); err != nil {
				return err
			}
			select {
			case sessions <- name:
			case <-stream.Context().Done():
			}
			<-stream.Context().Done()
			return nil
		})
		masters = append(masters, own)
	}
	run(t, Config{
		Dial: masters[0], Others: masters[1:], Agent: &fake{}, Log: slog.New(slog.DiscardHandler),
		Backoff: Backoff{Min: time.Millisecond, Max: time.Millisecond, Return: 10 * time.Millisecond},
	})
	for range 2 { // the second time after it has looked for the first choice in vain
		if got := <-sessions; got != "the second choice" {
			t.Fatalf("a session with %s, which takes nobody", got)
		}
	}
	close(back)
	for <-sessions != "the first choice" {
	}
}

// TestAnother: when a session with the first choice ends, whatever the reason, the next
// one is with another master, since the first may hang.
func TestAnother(t *testing.T) {
	t.Parallel()
	var masters []string
	sessions, over := make(chan string), make(chan struct{})
	for range 2 {
		var own string
		own = serve(t, func(stream linkpb.Link_SessionServer) error {
			if err := stream.Send(welcome(1)); err != nil {
				return err
			}
			select {
			case sessions <- own:
			case <-stream.Context().Done():
			}
			select {
			case <-over:
			case <-stream.Context().Done():
			}
			return status.Error(codes.Unavailable, "it ends")
		})
		masters = append(masters, own)
	}
	order := rank("m1", masters)
	run(t, Config{
		Dial: masters[0], Others: masters[1:], Agent: &fake{}, Log: slog.New(slog.DiscardHandler),
		Backoff: Backoff{Min: time.Millisecond, Max: time.Millisecond, Return: time.Hour},
	})
	for i, want := range []string{order[0], order[1], order[0]} {
		if got := <-sessions; got != want {
			t.Fatalf("session %d is with %s, want %s of %q", i, got, want, order)
		}
		over <- struct{}{}
	}
}
