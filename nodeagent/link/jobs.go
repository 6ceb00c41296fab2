package link

import (
	"sync"
	"weak"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// Jobs is the data of jobs that the clients of several machines in one process hold together,
// for as long as one of them does: thousands of machines have tasks of the same jobs. The zero
// Jobs is ready for use, from any goroutine; a nil one shares nothing.
type Jobs struct {
	mu sync.Mutex // guards of
	of map[schema.Digest]weak.Pointer[schema.Job]
}

// decode returns the job of a message, which is not to be written to. It errs when the bytes do
// not have the message's digest.
func (j *Jobs) decode(m *linkpb.Data) (*schema.Job, error) {
	if j == nil {
		return linkpb.DecodeJob(m)
	}
	digest := schema.Digest(m.GetDigest())
	if job := j.get(digest); job != nil {
		return job, nil
	}
	job, err := linkpb.DecodeJob(m)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.of == nil {
		j.of = map[schema.Digest]weak.Pointer[schema.Job]{}
	}
	j.of[digest] = weak.Make(job)
	return job, nil
}

func (j *Jobs) get(digest schema.Digest) *schema.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.of[digest].Value()
}
