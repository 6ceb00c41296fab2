package linktest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/schema"
)

// digests returns so many digests from the n-th on, sorted.
func digests(n, count int) []schema.Digest {
	var out []schema.Digest
	for i := range count {
		out = append(out, schema.Digest("sha256:"+strings.Repeat("0", 60)+fmt.Sprintf("%04d", n+i)))
	}
	return out
}

// The master knows what a machine holds, as it comes and goes; in a new session, too.
func TestContent(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	serve(t, path, masterlink.Config{Master: m, PullEvery: time.Millisecond})
	var content atomic.Pointer[[]schema.Digest]
	cfg := agentlink.Config{Agent: a, Content: func() []schema.Digest { return *content.Load() }}
	hold := func(is []schema.Digest) {
		t.Helper()
		content.Store(&is)
		eventually(t, fmt.Sprintf("%d digests at the master", len(is)), func() bool { return slices.Equal(m.said(), is) })
	}
	first := digests(0, schema.MaxContent)
	content.Store(&first)
	_, stop := run(t, path, cfg)
	hold(first)
	hold(digests(100, schema.MaxContent))
	hold(digests(100, 3))
	hold(nil)
	again := digests(7, 2)
	hold(again)
	stop()
	m.Content("m1", 1, nil)
	run(t, path, cfg)
	eventually(t, "the content of a new session", func() bool { return slices.Equal(m.said(), again) })
}
