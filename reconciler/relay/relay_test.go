package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

func view(generations ...uint64) []schema.Assignment {
	job := &schema.Job{Name: "j"}
	digest := schema.DigestOf(job)
	out := make([]schema.Assignment, len(generations))
	for i, g := range generations {
		out[i] = schema.Assignment{Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i), Generation: g, Data: digest, Job: job}
	}
	return out
}

// TestTakeover: what one master's agents say goes to the one that leads. When another
// leads, the sessions stay; it has the reports from memory, and the machines are sent
// what is new to them.
func TestTakeover(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{"m": 6}}
	first, second, replica := newMaster(t), newMaster(t), newMaster(t)
	l, h := first.lead(1, stored, nil)
	replica.Follow(first.address, 1)
	second.Follow(first.address, 1)
	if got := replica.join("m"); got != 7 {
		t.Fatalf("epoch %d: want 7", got)
	}
	own := first.join("here")
	h.Push("m", schema.View{Epoch: 7, Version: 40, Assignments: view(1)})
	replica.agents.wait(t, &replica.agents.pushed, "m/7 v1: 1")
	r := reportOf("m")
	replica.report("m", 7, r)
	first.report("here", own, reportOf("here"))
	eventually(t, "the leader has the reports", func() bool { return l.whole("m") == 1 && l.whole("here") == 1 })
	replica.report("m", 7, r)
	eventually(t, "the machine's report has arrived", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.reported["m"] == 2
	})
	if n := l.whole("m"); n != 1 {
		t.Errorf("the same report travels %d times", n)
	}

	first.resign(l)
	replica.report("m", 7, r) // while nobody leads
	replica.Wait()
	l, h = second.lead(2, stored, nil)
	first.Follow(second.address, 2)
	replica.Follow(second.address, 2)
	eventually(t, "the new leader has the reports", func() bool { return l.whole("m") == 1 && l.whole("here") == 1 })
	if got := l.connected("m"); got != 7 {
		t.Errorf("session %d of the machine goes on: want 7", got)
	}
	h.Push("m", schema.View{Epoch: 7, Version: 1, Assignments: view(1)})
	h.Push("m", schema.View{Epoch: 7, Version: 2, Assignments: view(1, 2)})
	replica.agents.wait(t, &replica.agents.pushed, "m/7 v1: 1", "m/7 v2: 2")
	for _, m := range []*master{first, replica} {
		if ended := m.agents.noted(&m.agents.ended); len(ended) > 0 {
			t.Errorf("sessions have ended: %q", ended)
		}
	}

	replica.Leave("m", 7)
	eventually(t, "the leader learns that it left", func() bool { return l.connected("m") == 0 })
	first.stop()
	eventually(t, "the machines of a master that is gone have no session", func() bool { return l.connected("here") == 0 })
}

// TestLargeData: a view of a machine whose jobs are together more than one message carries
// is sent all the same, and one that cannot be sent costs later ones, of the same jobs,
// nothing.
func TestLargeData(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	first, replica := newMaster(t), newMaster(t)
	_, h := first.lead(1, stored, nil)
	replica.Follow(first.address, 1)
	replica.join("m1")
	replica.join("m2")
	large := func(index, bytes int) schema.Assignment {
		job := &schema.Job{Name: fmt.Sprint("j", index), User: "u", Cell: "c", Task: schema.TaskSpec{Env: map[string]string{"X": strings.Repeat("x", bytes)}}}
		return schema.Assignment{Task: job.ID().Task(0), Generation: 1, Data: schema.DigestOf(job), Job: job}
	}
	empty := len(schema.Canonical(large(3, 0).Job))
	all := []schema.Assignment{large(0, 7<<20), large(1, 7<<20), large(2, 7<<20), large(3, schema.MaxJobData-empty)}
	if n := len(schema.Canonical(all[3].Job)); n != schema.MaxJobData {
		t.Fatalf("the largest job has %d bytes: want %d", n, schema.MaxJobData)
	}
	huge := large(4, linkpb.MaxMessage)
	h.Push("m1", schema.View{Epoch: 1, Version: 1, Assignments: append(slices.Clone(all), huge)})
	h.Push("m2", schema.View{Epoch: 1, Version: 1, Assignments: all[:1]})
	replica.agents.wait(t, &replica.agents.pushed, "m2/1 v1: 1")
	h.Push("m1", schema.View{Epoch: 1, Version: 2, Assignments: all})
	replica.agents.wait(t, &replica.agents.pushed, "m2/1 v1: 1", "m1/1 v1: 4")
	if ended := replica.agents.noted(&replica.agents.ended); len(ended) > 0 {
		t.Errorf("sessions have ended: %q", ended)
	}
}

// TestOverTheSame: a shard that has lost its leader for a moment resumes its sessions, and
// the leader sends the machines only what is new.
func TestSameLeaderAgain(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	leader, replica := newMaster(t), newMaster(t)
	l, h := leader.lead(1, stored, nil)
	replica.Follow(leader.address, 1)
	replica.join("m")
	h.Push("m", schema.View{Epoch: 1, Version: 1, Assignments: view(1)})
	replica.agents.wait(t, &replica.agents.pushed, "m/1 v1: 1")
	replica.Wait()
	eventually(t, "it has left", func() bool { return l.connected("m") == 0 })
	h.Push("m", schema.View{Epoch: 1, Version: 2, Assignments: view(2)}) // waits
	replica.Follow(leader.address, 1)
	replica.agents.wait(t, &replica.agents.pushed, "m/1 v1: 1", "m/1 v2: 1")
	if l.connected("m") != 1 {
		t.Error("it is not connected again")
	}
}

// TestStaleSession: a session that is not the machine's newest is not resumed, and ends.
func TestStaleSession(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	leader, a, b := newMaster(t), newMaster(t), newMaster(t)
	l, _ := leader.lead(1, stored, nil)
	a.Follow(leader.address, 1)
	a.join("m")
	a.Wait()
	b.Follow(leader.address, 1)
	if got := b.join("m"); got != 2 {
		t.Errorf("epoch %d: want 2", got)
	}
	a.Follow(leader.address, 1)
	a.agents.wait(t, &a.agents.ended, "m/1: rpc error: code = Unavailable desc = not the newest")
	if l.connected("m") != 2 {
		t.Error("the newer session is gone")
	}
}

// TestSameNameElsewhere: an agent whose name another one has, with another master, is
// asked for: one that answers keeps it, one that does not loses its session.
func TestSameNameElsewhere(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	leader, a, b := newMaster(t), newMaster(t), newMaster(t)
	l, _ := leader.lead(1, stored, nil)
	a.Follow(leader.address, 1)
	b.Follow(leader.address, 1)
	a.join("m")
	a.agents.set(func() { a.agents.answers = true })
	b.join("m")
	if asked := a.agents.noted(&a.agents.asked); !cmp.Equal(asked, []string{"m life of m"}) {
		t.Errorf("asked %q", asked)
	}
	l.mu.Lock()
	if got := l.joins[1].Link; !got.Answers || got.Life != "life of m" {
		t.Errorf("the leader knows of the connection: %+v", got)
	}
	l.mu.Unlock()
	a.agents.wait(t, &a.agents.ended, "m/1: rpc error: code = Aborted desc = another agent holds the name of machine m, since epoch 2")
	a.Leave("m", 1)
	a.join("n") // after which the leader knows of it
	if l.connected("m") != 2 {
		t.Error("the newer session has left")
	}
}

// TestRefusals: an agent gets the same answer, whichever master it asks.
func TestRefusals(t *testing.T) {
	t.Parallel()
	leader, replica := newMaster(t), newMaster(t)
	l, _ := leader.lead(1, &epochs{all: map[string]uint64{}}, nil)
	replica.Follow(leader.address, 1)
	for _, want := range []error{
		&schema.BehindError{Machine: "m", Seen: schema.Seen{Epoch: 4, Generation: 7}, Known: schema.Seen{Epoch: 2}},
		&schema.TakenError{Machine: "m", Holder: "m", Here: schema.Place{Host: "a"}, There: schema.Place{Host: "b"}, Why: "it is up", Hint: "stop it"},
		errors.New("ask again"),
	} {
		l.mu.Lock()
		l.refuse = want
		l.mu.Unlock()
		_, err := replica.Join(t.Context(), schema.MachineInfo{Name: "m"})
		if err == nil || err.Error() != want.Error() {
			t.Errorf("refused with %v: want %v", err, want)
		}
		behind, taken := (*schema.BehindError)(nil), (*schema.TakenError)(nil)
		if errors.As(want, &behind) != errors.As(err, &behind) || errors.As(want, &taken) != errors.As(err, &taken) {
			t.Errorf("refused with a %T: want a %T", err, want)
		}
	}
}

// TestRevoked: the leader has the last word on who is welcome with another master: when a
// machine joins, and later.
func TestRevoked(t *testing.T) {
	t.Parallel()
	revoked := make(chan struct{})
	leader, replica := newMaster(t), newMaster(t)
	l, _ := leader.lead(1, &epochs{all: map[string]uint64{}}, func(machine string, c *schema.Connection) error {
		select {
		case <-revoked:
			if machine == "m" && c.Key == "key" {
				return identity.ErrRefused
			}
		default:
		}
		return nil
	})
	replica.Follow(leader.address, 1)
	replica.join("m")
	replica.join("n")
	close(revoked)
	leader.revision.Add(1)
	eventually(t, "the session ends", func() bool {
		ended := replica.agents.noted(&replica.agents.ended)
		return len(ended) > 0 && strings.HasPrefix(ended[0], "m/1: rpc error: code = PermissionDenied")
	})
	if _, err := replica.Join(t.Context(), schema.MachineInfo{Name: "m", Link: schema.Connection{Key: "key"}}); !errors.Is(err, identity.ErrRefused) {
		t.Errorf("a machine that was revoked joins: %v", err)
	}
	// It cannot go on with the sessions that it has, either.
	replica.Wait()
	eventually(t, "they have left", func() bool { return l.connected("n") == 0 })
	replica.Follow(leader.address, 1)
	eventually(t, "the session is not resumed", func() bool {
		ended := replica.agents.noted(&replica.agents.ended)
		return strings.HasPrefix(ended[len(ended)-1], "m/1: rpc error: code = Unavailable desc = refused")
	})
}

// TestJoinWaits: who joins while nobody leads waits for that; and who does not wait for
// the answer has no session.
func TestJoinWaits(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	leader, replica := newMaster(t), newMaster(t)
	joined := make(chan uint64, 1)
	go func() { joined <- replica.join("m") }()
	l, _ := leader.lead(1, stored, nil)
	replica.Follow(leader.address, 1)
	if got := <-joined; got != 1 {
		t.Errorf("epoch %d: want 1", got)
	}
	hold := make(chan struct{})
	l.mu.Lock()
	l.hold = hold
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	go func() {
		eventually(t, "the join is there", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.joins) == 2
		})
		cancel(gone)
	}()
	if _, err := replica.Join(ctx, schema.MachineInfo{Name: "n"}); !errors.Is(err, gone) {
		t.Errorf("a join without a waiter: %v", err)
	}
	close(hold)
	eventually(t, "it has joined and left", func() bool { return stored.of("n") == 1 && l.connected("n") == 0 })

	replica.Refuse(errors.New("of another release"))
	if _, err := replica.Join(t.Context(), schema.MachineInfo{Name: "m"}); err == nil || err.Error() != "of another release" {
		t.Errorf("a join that is refused: %v", err)
	}
	replica.agents.wait(t, &replica.agents.ended, "m/1: rpc error: code = Unavailable desc = of another release")
}

// TestParted: the sessions of a master that cannot reach the leader end, since others may
// reach it; and nobody joins there until it does.
func TestParted(t *testing.T) {
	t.Parallel()
	leader, replica := newMaster(t), newMaster(t)
	leader.lead(1, &epochs{all: map[string]uint64{}}, nil)
	replica.Follow(leader.address, 1)
	replica.join("m")
	nowhere := leader.address + "-not"
	replica.Follow(nowhere, 2)
	eventually(t, "the session ends", func() bool { return len(replica.agents.noted(&replica.agents.ended)) > 0 })
	if _, err := replica.Join(t.Context(), schema.MachineInfo{Name: "n"}); err == nil || !strings.Contains(err.Error(), "cannot reach "+nowhere) {
		t.Errorf("a join there: %v", err)
	}
	replica.Follow(leader.address, 1)
	replica.join("n")
}

// TestElectionOutOfReach: the sessions of a master that cannot find out who leads end,
// and those of one that knows that nobody does stay.
func TestElectionOutOfReach(t *testing.T) {
	t.Parallel()
	stored := &epochs{all: map[string]uint64{}}
	m := newMaster(t)
	l, _ := m.lead(1, stored, nil)
	m.join("m")
	m.resign(l)
	joined := make(chan uint64)
	go func() { joined <- m.join("n") }()
	m.lead(2, stored, nil)
	<-joined
	if ended := m.agents.noted(&m.agents.ended); len(ended) > 0 {
		t.Errorf("sessions have ended while nobody led: %q", ended)
	}
	m.Lose()
	eventually(t, "both sessions end", func() bool { return len(m.agents.noted(&m.agents.ended)) == 2 })
	if _, err := m.Join(t.Context(), schema.MachineInfo{Name: "o"}); err == nil || !strings.Contains(err.Error(), "cannot find out who leads") {
		t.Errorf("a join there: %v", err)
	}
	m.lead(3, stored, nil)
	m.join("o")
}

// TestAnotherTerm: an address at which another term is led than the election says is not
// followed.
func TestAnotherTerm(t *testing.T) {
	t.Parallel()
	leader, replica := newMaster(t), newMaster(t)
	leader.lead(3, &epochs{all: map[string]uint64{}}, nil)
	replica.Follow(leader.address, 4)
	eventually(t, "it is out of reach", func() bool {
		_, err := replica.Join(t.Context(), schema.MachineInfo{Name: "m"})
		return err != nil && strings.Contains(err.Error(), "it leads in term 3: want 4")
	})
}

// TestLogsAndExec: both are there whichever master has the machine.
func TestLogsAndExec(t *testing.T) {
	t.Parallel()
	leader, replica := newMaster(t), newMaster(t)
	_, h := leader.lead(1, &epochs{all: map[string]uint64{}}, nil)
	replica.Follow(leader.address, 1)
	logs := schema.LogRequest{Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(0), Stream: schema.Stdout, Tail: -1}
	if _, err := h.Logs(t.Context(), "m", logs); !errors.Is(err, relay.ErrNotConnected) {
		t.Errorf("the log of a machine without a session: %v", err)
	}
	replica.join("m")
	eventually(t, "the machine is connected", func() bool {
		_, err := h.Logs(t.Context(), "m", logs)
		return !errors.Is(err, relay.ErrNotConnected)
	})
	text := strings.Repeat("a line\n", 20_000)
	replica.agents.set(func() { replica.agents.log = io.NopCloser(strings.NewReader(text)) })
	r, err := h.Logs(t.Context(), "m", logs)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("%d bytes of the log, %v: want %d", len(got), err, len(text))
	}
	_ = r.Close()
	replica.agents.set(func() { replica.agents.log = missing{} })
	if r, err = h.Logs(t.Context(), "m", logs); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that there is not: %v", err)
	}
	_ = r.Close()

	there, agent := net.Pipe()
	replica.agents.set(func() { replica.agents.session = there })
	conn, err := h.Exec(t.Context(), "m", schema.ExecRequest{Task: logs.Task, Command: []string{"sh"}})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(agent, agent) }() // an echo
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Errorf("back came %q, %v", got, err)
	}
	_ = conn.Close()
	if _, err := io.Copy(io.Discard, agent); err != nil && !errors.Is(err, io.ErrClosedPipe) { // it ends
		t.Errorf("the agent's end: %v", err)
	}
}

// missing is a log that there is not.
type missing struct{}

func (missing) Read([]byte) (int, error) { return 0, fs.ErrNotExist }
func (missing) Close() error             { return nil }
