package store

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// A snapshot is a gzipped file of JSON lines: a header, a line for each document,
// sorted by key, and the SHA-256 of all lines before. It holds what the store
// holds and nothing of how: it can be restored by a later release, and into
// another kind of store.
const (
	snapshotFormat = 1
	snapshotSuffix = ".snapshot"
	snapshotTime   = "20060102T150405Z"
)

// SnapshotInfo says what a snapshot is of.
type SnapshotInfo struct {
	Format    int       `json:"snapshot"`
	Cell      string    `json:"cell"`
	Release   string    `json:"release"` // that wrote it
	At        time.Time `json:"at"`
	Documents int       `json:"documents"`
}

type snapshotLine struct {
	Key    string `json:"key,omitempty"`
	Value  []byte `json:"value,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // the last line's
}

// Snapshot writes all documents into a new file in dir, durably, and returns its
// path; then it removes all but the newest keep. It must be called by the leader:
// nobody else writes meanwhile. A cell that was not written to since the last
// snapshot of this Store gets none, and "" is returned.
func (s *Store) Snapshot(ctx context.Context, dir string, keep int, now time.Time) (string, error) {
	s.mu.Lock()
	written := s.written
	s.mu.Unlock()
	if written == s.snapshotted {
		return "", nil
	}
	docs, err := s.Load(ctx)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	path := filepath.Join(dir, s.cell+"-"+now.UTC().Format(snapshotTime)+snapshotSuffix)
	info := SnapshotInfo{Format: snapshotFormat, Cell: s.cell, Release: s.release, At: now.UTC(), Documents: len(docs)}
	failpoint.SnapshotWrite.Before()
	err = writeSnapshot(path, info, docs)
	failpoint.SnapshotWrite.After()
	if err != nil {
		return "", fmt.Errorf("snapshot: %w", err)
	}
	s.snapshotted = written
	return path, thin(dir, s.cell, keep, now)
}

// writeSnapshot leaves the whole file or none.
func writeSnapshot(path string, info SnapshotInfo, docs map[string][]byte) error {
	return atomicfile.WriteFrom(path, 0o600, func(w io.Writer) error {
		buffer := bufio.NewWriter(w)
		if err := encodeSnapshot(buffer, info, docs); err != nil {
			return err
		}
		return buffer.Flush()
	})
}

func encodeSnapshot(w io.Writer, info SnapshotInfo, docs map[string][]byte) error {
	zip, sum := gzip.NewWriter(w), sha256.New()
	lines := json.NewEncoder(io.MultiWriter(zip, sum))
	if err := lines.Encode(info); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(docs)) {
		if err := lines.Encode(snapshotLine{Key: key, Value: docs[key]}); err != nil {
			return err
		}
	}
	if err := lines.Encode(snapshotLine{SHA256: hex.EncodeToString(sum.Sum(nil))}); err != nil {
		return err
	}
	return zip.Close()
}

// snapshotFile is a snapshot in a directory of them, as its name says.
type snapshotFile struct {
	name string
	at   time.Time
}

// snapshotsOf returns a cell's snapshots, the one that was taken last at the end.
// Those of a time after now were taken by a clock that was wrong: they count as
// the oldest, so that they neither outlive nor stand in for what is taken since.
func snapshotsOf(dir, cell string, now time.Time) ([]snapshotFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []snapshotFile
	for _, e := range entries { // sorted, and thus by time
		stamp, suffixed := strings.CutSuffix(e.Name(), snapshotSuffix)
		stamp, ours := strings.CutPrefix(stamp, cell+"-")
		if at, err := time.Parse(snapshotTime, stamp); err == nil && suffixed && ours {
			files = append(files, snapshotFile{e.Name(), at})
		}
	}
	to, _ := slices.BinarySearchFunc(files, now, func(f snapshotFile, now time.Time) int {
		if f.at.After(now) {
			return 1
		}
		return -1
	})
	return slices.Concat(files[to:], files[:to]), nil
}

// thin removes all but the newest snapshots of a cell.
func thin(dir, cell string, keep int, now time.Time) error {
	files, err := snapshotsOf(dir, cell, now)
	if err != nil {
		return fmt.Errorf("old snapshots: %w", err)
	}
	for _, f := range files[:max(0, len(files)-keep)] {
		failpoint.SnapshotRemove.Before()
		err := os.Remove(filepath.Join(dir, f.name))
		failpoint.SnapshotRemove.After()
		if err != nil {
			return fmt.Errorf("old snapshots: %w", err)
		}
	}
	return nil
}

// ReadSnapshot reads a snapshot and verifies that it is whole.
func ReadSnapshot(path string) (info SnapshotInfo, docs map[string][]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return info, nil, fmt.Errorf("snapshot: %w", err)
	}
	defer f.Close()
	info, docs, err = decodeSnapshot(bufio.NewReader(f))
	if err != nil {
		return info, nil, fmt.Errorf("snapshot %s: %w", path, err)
	}
	return info, docs, nil
}

const damagedSnapshot = "take another snapshot; each is complete by itself"

var errNameless = errors.New("it does not say what it is")

func decodeSnapshot(r io.Reader) (info SnapshotInfo, docs map[string][]byte, err error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return info, nil, schema.Hintf("they are in the directory snapshots of a master's data directory, and end in "+snapshotSuffix, "it is not a snapshot of muster: %w", err)
	}
	sum := sha256.New()
	lines := bufio.NewReader(zip)
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &info)
	}
	switch {
	case err != nil || info.Format == 0:
		return info, nil, schema.Hintf(damagedSnapshot, "it is not a snapshot of muster, or damaged at its first line: %w", cmp.Or(err, errNameless))
	case info.Format > snapshotFormat:
		return info, nil, &NewerError{"the snapshot", info.Format, info.Release}
	}
	sum.Write(line)
	if docs, err = snapshotDocuments(lines, sum); err != nil {
		return info, nil, schema.Hintf(damagedSnapshot, "damaged after %d of %d documents: %w", len(docs), info.Documents, err)
	}
	if len(docs) != info.Documents {
		return info, nil, schema.Hintf(damagedSnapshot, "damaged: it has %d documents, and says %d", len(docs), info.Documents)
	}
	return info, docs, nil
}

// snapshotDocuments reads up to the last line, which must have the digest of
// all before.
func snapshotDocuments(r *bufio.Reader, sum hash.Hash) (map[string][]byte, error) {
	docs := map[string][]byte{}
	for {
		text, err := r.ReadBytes('\n')
		if err != nil {
			return docs, fmt.Errorf("it ends before its last line: %w", err)
		}
		var line snapshotLine
		if err := json.Unmarshal(text, &line); err != nil {
			return docs, err
		}
		if line.SHA256 == "" {
			sum.Write(text)
			docs[line.Key] = append([]byte{}, line.Value...)
			continue
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != line.SHA256 {
			return docs, fmt.Errorf("its content has the digest %s, and it says %s", got, line.SHA256)
		}
		if _, err := r.ReadByte(); err != io.EOF {
			return docs, errors.Join(errors.New("it has data after its last line"), err)
		}
		return docs, nil
	}
}
