package linkpb

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/schema"
)

// EncodeDigests returns the digests of a directory as they are sent.
func EncodeDigests(d *schema.DirectoryDigests) []byte {
	out := make([]byte, 0, len(d)*len(d[0]))
	for i := range d {
		out = append(out, d[i][:]...)
	}
	return out
}

// DecodeDigests reads what EncodeDigests returns. It errs when that has another length.
func DecodeDigests(b []byte) (*schema.DirectoryDigests, error) {
	d := new(schema.DirectoryDigests)
	if len(b) != len(d)*len(d[0]) {
		return nil, fmt.Errorf("digests of a directory have %d bytes: want %d", len(b), len(d)*len(d[0]))
	}
	for i := range d {
		b = b[copy(d[i][:], b):]
	}
	return d, nil
}

// DecodeDirectory reads a change of a directory. It errs when a shard or an entry cannot be.
func DecodeDirectory(m *DirectoryChange) (schema.DirectoryChange, error) {
	c := schema.DirectoryChange{Removed: m.GetRemoved()}
	for _, i := range m.GetShards() {
		if i >= schema.DirectoryShards {
			return c, fmt.Errorf("shard %d of a directory: want 0 to %d", i, schema.DirectoryShards-1)
		}
		c.Shards = append(c.Shards, int(i))
	}
	c.Set = make([]schema.DirectoryEntry, len(m.GetSet()))
	for i, text := range m.GetSet() {
		if err := json.Unmarshal(text, &c.Set[i]); err != nil {
			return c, fmt.Errorf("entry of a directory: %w", err)
		}
	}
	return c, nil
}

// EncodeUnlisted writes tasks to which nothing is sent any more.
func EncodeUnlisted(list []schema.UnlistedTask) *Unlisted {
	m := &Unlisted{}
	for _, x := range list {
		m.Tasks, m.Generations = append(m.Tasks, x.Task), append(m.Generations, x.Generation)
	}
	return m
}

// DecodeUnlisted reads tasks to which nothing is sent any more. From a master of an earlier release their
// generations are 0.
func DecodeUnlisted(m *Unlisted) ([]schema.UnlistedTask, error) {
	generations := m.GetGenerations()
	if n := len(generations); n > 0 && n != len(m.GetTasks()) {
		return nil, fmt.Errorf("%d generations of %d tasks", n, len(m.GetTasks()))
	}
	list := make([]schema.UnlistedTask, len(m.GetTasks()))
	for i, task := range m.GetTasks() {
		list[i].Task = task
		if len(generations) > 0 {
			list[i].Generation = generations[i]
		}
	}
	return list, nil
}
