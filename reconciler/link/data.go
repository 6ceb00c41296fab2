package link

import (
	"sync"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// dataBytes is how much job data is kept encoded, in bytes.
const dataBytes = 4 << 20

// encodedData keeps the messages with the data of jobs: the tasks of a job are on many
// machines, and each of these gets its data. Any goroutine may use it.
type encodedData struct {
	mu       sync.Mutex // guards what follows
	messages map[schema.Digest]*linkpb.MasterMessage
	bytes    int
}

// of returns the message that carries a job's data. It errs when digest is not that of the
// job.
func (d *encodedData) of(digest schema.Digest, job *schema.Job) (*linkpb.MasterMessage, error) {
	d.mu.Lock()
	m := d.messages[digest]
	d.mu.Unlock()
	if m != nil {
		return m, nil
	}
	data, err := linkpb.EncodeJob(digest, job)
	if err != nil {
		return nil, err
	}
	m = &linkpb.MasterMessage{Message: &linkpb.MasterMessage_Data{Data: data}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.messages == nil || d.bytes+len(data.GetJson()) > dataBytes {
		d.messages, d.bytes = map[schema.Digest]*linkpb.MasterMessage{}, 0
	}
	if d.messages[digest] == nil {
		d.messages[digest] = m
		d.bytes += len(data.GetJson())
	}
	return m, nil
}
