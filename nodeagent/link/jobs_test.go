package link

import (
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// TestJobs: the second client that gets the data of a job has the job of the first, and data
// that is damaged is refused.
func TestJobs(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Cell: "c", User: "u", Name: "j"}
	data, err := linkpb.EncodeJob(schema.DigestOf(job), job)
	if err != nil {
		t.Fatal(err)
	}
	var shared Jobs
	first, err := shared.decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := shared.decode(data); err != nil || second != first {
		t.Errorf("the second client has a copy, or %v", err)
	}
	var none *Jobs
	if own, err := none.decode(data); err != nil || own == first {
		t.Errorf("a client that shares nothing has the same, or %v", err)
	}
	data.Digest = "sha256:00"
	if _, err := shared.decode(data); err == nil {
		t.Error("data with another digest is taken")
	}
}
