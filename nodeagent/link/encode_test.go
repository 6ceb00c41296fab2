package link

import (
	"bytes"
	"testing"

	"github.com/musterhq/muster/schema"
)

// still is an agent whose report is the one it was made with.
type still struct {
	fake
	report *schema.Report
}

func (s *still) Report() *schema.Report { return s.report }

// A report is encoded once, however often it is asked for.
func TestReportIsEncodedOnce(t *testing.T) {
	t.Parallel()
	agent := &still{report: &schema.Report{Machine: schema.MachineInfo{Name: "m1"}, View: 5}}
	s := &session{client: New(Config{Agent: agent})}
	encode := func() encoded {
		t.Helper()
		e, err := s.encode()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := encode()
	if again := encode(); &again.body[0] != &first.body[0] {
		t.Error("a report that says the same is encoded again")
	}
	agent.report = &schema.Report{Machine: schema.MachineInfo{Name: "m1"}, View: 6}
	if other := encode(); bytes.Equal(other.digest, first.digest) {
		t.Error("another report is sent as the one before")
	}
}
