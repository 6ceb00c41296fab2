package denied_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/reconciler/denied"
	"github.com/musterhq/muster/schema"
)

// TestRefused: all refusals are counted; of many only few are logged, and one of each
// reason is an event, with how many there were beside it.
func TestRefused(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	var events []schema.Event
	l := denied.New(denied.Config{
		What: "request", Metric: "refused_total", Help: "Refused.", Reasons: []string{"token", "user", "never"},
		Log: slog.New(slog.NewTextHandler(&said, nil)), Audit: func(e schema.Event) { events = append(events, e) },
	})
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1200 { // two a second
		at := start.Add(time.Duration(i) * 500 * time.Millisecond)
		l.Refused("user", fmt.Errorf("uid %d:\nnot\x1b[31m here", i), at, "from", "10.0.0.7")
		if i == 3 {
			l.Refused("token", errors.New(strings.Repeat("é", 1000)), at)
		}
	}
	l.Refused("user", errors.New("later"), start.Add(10*time.Minute))
	l.Refused("user", errors.New("the clock was set back"), start.Add(-10*time.Minute))
	want := []schema.Event{
		{At: start, Kind: schema.EventRefuse, Message: "request refused (user): uid 0: not [31m here"},
		{At: start.Add(1500 * time.Millisecond), Kind: schema.EventRefuse, Message: "request refused (token): " + strings.Repeat("é", 150)},
		{At: start.Add(10 * time.Minute), Kind: schema.EventRefuse, Message: "request refused (user): later; 1199 more since the last such event"},
		{At: start.Add(-10 * time.Minute), Kind: schema.EventRefuse, Message: "request refused (user): the clock was set back"},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := strings.Count(said.String(), "\n"); n != 63 {
		t.Errorf("%d lines, want 60 in ten minutes, one later, one after the clock was set back, and one of another reason:\n%s", n, said.String())
	}
	if !strings.Contains(said.String(), `msg="request refused" from=10.0.0.7 reason=user err="uid 20:\nnot\x1b[31m here" unsaid=19`) {
		t.Errorf("said %s", said.String())
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	if diff := cmp.Diff(map[string]float64{"user": 1202, "token": 1, "never": 0}, got); diff != "" {
		t.Errorf("%s counts (-want +got):\n%s", families[0].GetName(), diff)
	}
}
