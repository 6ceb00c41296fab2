package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var updated = flag.Int("e2e.updated", 2, "tasks of TestImageUpdate")

// imageServed is a job of containers that serve, of which a fifth may be down. Whoever watches its
// endpoints has four seconds to look elsewhere.
const imageServed = `package crew

import "%s/muster"

job: web: muster.#Job & {
	user: "crew", cell: %q, tasks: %d
	task: {
		container: image: %q
		resources: {cpuMilli: 5, ramBytes: 32Mi, diskBytes: 16Mi, ports: ["http"]}
		graceSeconds: 10
		stop: delaySeconds: 4
		health: {http: {port: "http", path: "/"}, intervalSeconds: 1, timeoutSeconds: 10}
	}
	update: {maxParallel: %[5]d, minHealthySeconds: 1}
	disruption: maxDown: %[5]d
}
`

// gate is a registry of which the blobs of one repository have to wait.
type gate struct {
	*httptest.Server

	asked, opened chan struct{} // closed at the first request, and to let all pass
}

func newGate(t *testing.T, registry, repository string) *gate {
	t.Helper()
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: registry})
	g := &gate{asked: make(chan struct{}), opened: make(chan struct{})}
	var first sync.Once
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/"+repository+"/blobs/") {
			first.Do(func() { close(g.asked) })
			select {
			case <-g.opened:
			case <-r.Context().Done():
				return
			}
		}
		to.ServeHTTP(w, r)
	}))
	t.Cleanup(g.Close)
	return g
}

// TestImageUpdate updates a job to an image that is not on its machine, while somebody sends it
// requests: the old tasks run until the new image is there, however long it takes, then they
// are replaced in turn, and all requests are answered.
func TestImageUpdate(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	c := newCell(t)
	c.until("the agent says what it can", func(s *status.Status) string {
		if m := s.Machines[0]; m.Attributes[schema.HasContainers] != "true" {
			t.Skipf("NOT TESTED: needs a runtime of containers: %v", m.Notes)
		}
		return ""
	})
	registry := imagetest.DockerRegistry(t)
	layer := imagetest.Busybox(t, nil)
	g := newGate(t, registry, "after")
	push := func(name string, layers ...imagetest.Layer) string {
		i := imagetest.OfLayers(t, imagetest.Settings{Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{webScript}, Env: []string{"PATH=/bin", "IMAGE=" + name}}, layers...)
		imagetest.Push(t, registry, name, i)
		return strings.TrimPrefix(g.URL, "http://") + "/" + name + "@" + i.Digest.String()
	}
	tasks, parallel := *updated, max(1, *updated/5)
	version := func(image string) map[string][]byte {
		return map[string][]byte{teamFile: fmt.Appendf(nil, imageServed, module, cellName, tasks, image, parallel)}
	}
	before, after := push("before", layer), push("after", imagetest.Random(t, 1, 1<<20), layer, imagetest.Random(t, 2, 1<<20))
	c.converge(c.commit("a service", version(before)))
	old := c.healthy("web", tasks)

	calls := &caller{api: c.api}
	ctx, cancel := context.WithTimeout(t.Context(), 10*bound)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { calls.watch(ctx, tasks) })
	running.Go(func() { calls.call(ctx) })
	answered := func(more int) { // the rate is the caller's
		from, _ := calls.count()
		for asked := from; asked < from+more && ctx.Err() == nil; asked, _ = calls.count() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	hash := c.commit("an image that is to be pulled", version(after))
	select {
	case <-g.asked:
	case <-t.Context().Done():
		t.Fatal("the image is not pulled")
	}
	answered(20 * tasks)
	for name, now := range c.healthy("web", tasks) {
		if was := old[name]; now.PID != was.PID {
			t.Errorf("%s is process %d while the image is pulled, and was %d", name, now.PID, was.PID)
		}
	}
	close(g.opened)
	c.converge(hash)
	for name, now := range c.healthy("web", tasks) {
		if was := old[name]; now.PID == was.PID {
			t.Errorf("%s is still process %d", name, now.PID)
		}
	}
	if got := c.says("exec", "crew/web/0", "--", "sh", "-c", "echo $IMAGE"); got != "after\n" {
		t.Errorf("crew/web/0 is of the image %q", got)
	}
	answered(20 * tasks)
	cancel()
	running.Wait()
	t.Logf("%d requests, %d failed; at most %d of %d tasks down at once", calls.asked, len(calls.failed), calls.down, tasks)
	if calls.asked < 40*tasks {
		t.Errorf("there were %d requests", calls.asked)
	}
	if len(calls.failed) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(calls.failed), calls.failed[0])
	}
	if calls.down > parallel {
		t.Errorf("%d tasks were down at once, and the budget is %d", calls.down, parallel)
	}
}
