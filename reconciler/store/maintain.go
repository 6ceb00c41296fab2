package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Upkeep is what Maintain needs.
type Upkeep struct {
	// Dir is where snapshots go, Every how much time is between two (0: there
	// are none), and Keep how many stay.
	Dir   string
	Every time.Duration
	Keep  int
	// Note is called for each snapshot ("snapshot", with its path), for each
	// defragmentation, and for each of them that failed. It must not block.
	Note func(what, message string, err error)
}

// The kinds of maintenance that Note is called for.
const (
	NoteSnapshot = "snapshot"
	NoteDefrag   = "defragmentation"
)

const (
	lookEvery = time.Minute // how often it is seen whether a snapshot, or more room, is due
	// The embedded etcd's file never shrinks by itself. Half of it being free,
	// and more than this, is worth a pause of a second for each 100 MB.
	fragmented = 64 << 20
	healTime   = time.Minute
	early      = time.Second // by so much less than lookEvery may be between two ticks, as they come late
)

// Maintain takes snapshots when they are due, and gives free space of the
// embedded etcd back, until ctx ends. It is for a leader; it errs never.
func (s *Store) Maintain(ctx context.Context, u Upkeep) {
	every := lookEvery
	if u.Every > 0 {
		every = min(every, max(u.Every, time.Second))
	}
	look := time.NewTicker(every)
	defer look.Stop()
	// Its age counts from here on, whatever becomes of the time of day.
	start := time.Now()
	last := start.Add(-start.Sub(newestSnapshot(u.Dir, s.cell, start)))
	for {
		if now := time.Now(); u.Every > 0 && now.Sub(last) >= u.Every {
			last = now // also of one that failed: it is not tried each time that is looked
			path, err := s.Snapshot(ctx, u.Dir, u.Keep, now)
			if ctx.Err() == nil && (err != nil || path != "") {
				u.Note(NoteSnapshot, path, err)
			}
		}
		if m, ok := s.be.(maintained); ok {
			if message, err := m.defragment(ctx, time.Now()); ctx.Err() == nil && (err != nil || message != "") {
				u.Note(NoteDefrag, message, err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
	}
}

// newestSnapshot returns when the newest snapshot of a cell was made, zero if
// there is none, or none that a right clock can have made.
func newestSnapshot(dir, cell string, now time.Time) time.Time {
	files, err := snapshotsOf(dir, cell, now)
	if err != nil || len(files) == 0 || files[len(files)-1].at.After(now) {
		return time.Time{}
	}
	return files[len(files)-1].at
}

// maintained is a backend whose disk is ours to look after.
type maintained interface {
	// defragment forgets what is not needed any more if that is much, gives free space back if there is enough, and
	// says how much. One goroutine calls it, with a time that only grows.
	defragment(ctx context.Context, now time.Time) (message string, err error)
}

// size returns how large etcd's file is, and how much of it is in use.
func (b *etcdBackend) size() (bytes, used int64) {
	file := b.server.Server.Backend()
	return file.Size(), file.SizeInUse()
}

// look is what was seen when it was looked whether to compact.
type look struct {
	at   time.Time
	rev  int64
	used int64 // bytes of the file that were in use
}

// compact forgets old revisions once they are much: etcd itself counts them, of which the thousand that it keeps may be a
// gigabyte. What a scan reads is kept by this: it compacts none while one of this process is under way, and those of other members
// have the time between two looks, of which none counts that follows the one before sooner. One that begins meanwhile reads
// what is kept. etcd itself, which goes by revisions, and heal do not ask for scans.
func (b *etcdBackend) compact(ctx context.Context, at time.Time) error {
	last := b.looked
	if !last.at.IsZero() && at.Sub(last.at) < lookEvery-early {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	now, err := b.client.Get(ctx, root, clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err != nil {
		return b.down(err)
	}
	_, used := b.size()
	if !last.at.IsZero() && last.used-b.kept >= max(fragmented, b.kept/2) {
		if b.scans.Load() > 0 {
			return nil // the look before is still to be compacted to
		}
		_, err = b.client.Compact(ctx, last.rev, clientv3.WithCompactPhysical())
		if err != nil && !strings.Contains(err.Error(), alreadyCompacted) {
			return b.down(err)
		}
		_, after := b.size()
		b.kept = max(0, after-(used-last.used)) // what has come since is still to be looked at
	}
	b.looked = look{at, now.Header.Revision, used}
	return nil
}

// alreadyCompacted is what etcd says when it has forgotten a revision before.
const alreadyCompacted = "has been compacted"

func (b *etcdBackend) defragment(ctx context.Context, now time.Time) (string, error) {
	if err := b.compact(ctx, now); err != nil {
		return "", err
	}
	bytes, used := b.size()
	if bytes-used < max(fragmented, bytes/2) {
		return "", nil
	}
	_, err := call(b.end, func() (struct{}, error) { return struct{}{}, b.server.Server.Backend().Defrag() })
	if err != nil {
		return "", b.down(err)
	}
	after, _ := b.size()
	return fmt.Sprintf("%d MiB given back, %d MiB are left", (bytes-after)>>20, after>>20), nil
}

// heal ends etcd's alarm that its quota is used up, if what it has kept of old
// revisions used so much that there is room for another transaction without.
func (b *etcdBackend) heal(ctx context.Context) error {
	alarms, err := b.client.AlarmList(ctx)
	if err != nil {
		return b.down(err)
	}
	full := func(a *pb.AlarmMember) bool { return a.GetAlarm() == pb.AlarmType_NOSPACE }
	if !slices.ContainsFunc(alarms.Alarms, full) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	now, err := b.client.Get(ctx, root, clientv3.WithLimit(1), clientv3.WithKeysOnly())
	if err == nil {
		_, err = b.client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil && !strings.Contains(err.Error(), alreadyCompacted) {
		return b.down(err)
	}
	if err := b.server.Server.Backend().Defrag(); err != nil {
		return b.down(err)
	}
	if bytes, _ := b.size(); bytes+maxBytes > b.quota {
		return b.down(fmt.Errorf("the documents take %.1f MiB, and the store's quota is %d MiB", float64(bytes)/(1<<20), b.quota>>20))
	}
	for _, a := range alarms.Alarms {
		if full(a) {
			if _, err := b.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
				return b.down(err)
			}
		}
	}
	return nil
}
