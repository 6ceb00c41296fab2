package e2e_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

// hubRegistry is where the machines of a network may find images: at its hub.
const hubRegistry = "10.99.0.1:8000"

// serveAtHub serves h at hubRegistry.
func (n *network) serveAtHub(h http.Handler) {
	n.t.Helper()
	var l net.Listener
	err := thread.Run(func() error {
		hub, err := os.Open(filepath.Join("/run/netns", n.names[0]))
		if err != nil {
			return err
		}
		defer hub.Close()
		if err := unix.Setns(int(hub.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		l, err = net.Listen("tcp", hubRegistry)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // until it is closed
	n.t.Cleanup(func() { _ = server.Close() })
}

// kernels are web servers, to which only those with a label may connect, and two jobs, one with the label: each task has a
// kernel of its own, and the others say nothing of a network. The servers are behind a service.
const kernels = `package crew

import "` + module + `/muster"

job: [string]: muster.#Job & {
	user: "crew", cell: "` + cellName + `"
	task: container: {image: %q, runtime: "runsc"}
	task: resources: {cpuMilli: 5, ramBytes: 96Mi, diskBytes: 8Mi}
	task: graceSeconds: 1
}
job: web: {
	tasks: 2, spread: by: "hostname"
	policy: from: [{selector: "role=friend"}]
	task: {
		container: command: ["/bin/sh", "-c", "mkdir -p /tmp/www && echo served >/tmp/www/index.html && exec httpd -f -p $MUSTER_PORT_HTTP -h /tmp/www"]
		isolation: network: "own" // of who has a policy
		resources: ports: ["http"]
		health: {http: {port: "http", path: "/"}, intervalSeconds: 1, timeoutSeconds: 30}
	}
}
job: [=~"^(friend|foe)$"]: task: container: command: ["/bin/sleep", "1000000"]
job: friend: labels: role: "friend"
service: front: muster.#Service & {user: "crew", cell: "` + cellName + `", selector: "muster/job=web", ports: http: port: %d}
job: foe: {}
`

// TestOwnNetworkOfKernels: tasks with kernels of their own have networks as others have: checks, other tasks and a service
// reach them at addresses of IPv4 and IPv6, they find names, and what refuses connections is outside of them. So it is while
// agents are killed, and after a keeper was.
func TestOwnNetworkOfKernels(t *testing.T) {
	t.Parallel()
	c := newRanged(t, schema.ModeVXLAN)
	c.until("the machines say what they can", func(s *status.Status) string {
		for i := range s.Machines {
			if m := &s.Machines[i]; m.Attributes[schema.Runsc.Attribute()] != "true" {
				t.Skipf("NOT TESTED: needs runsc: %v", m.Notes)
			} else if m.Attributes[schema.HasKernelNetwork] != "true" {
				t.Errorf("%s: %v", m.Name, m.Notes)
			}
		}
		return ""
	})
	registry := imagetest.NewRegistry(t)
	c.net.serveAtHub(registry)
	_, image, _ := strings.Cut(registry.Add("web", imagetest.Of(t, imagetest.Busybox(t, nil), imagetest.Settings{Env: []string{"PATH=/bin"}})), "/")
	s := c.converge(c.commit("kernels", map[string][]byte{teamFile: fmt.Appendf(nil, kernels, hubRegistry+"/"+image, schema.FirstOwnPort)}))
	servers := []string{"front.crew.svc." + cellName + ".muster.internal"}
	for _, task := range s.Tasks {
		if strings.HasPrefix(task.Name, "crew/web/") {
			servers = append(servers, task.Address, task.Address6, fmt.Sprintf("%s.web.crew.%s.muster.internal", task.Name[len("crew/web/"):], cellName))
		}
		if task.Address == "" || task.Address6 == "" || task.Health == schema.Unhealthy {
			t.Errorf("%s is at %q and %q, and %s", task.Name, task.Address, task.Address6, task.Health)
		}
	}
	if len(servers) != 7 {
		t.Fatalf("the servers are %v", servers)
	}
	asks := func(when string, served bool, who string, whom ...string) error {
		for _, a := range whom {
			out, err := c.inside("crew/"+who+"/0", "/bin/sh", "-c", fmt.Sprintf("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 60 %s %d 2>&1 || :", a, schema.FirstOwnPort))
			if word := map[bool]string{true: "served", false: "Connection refused"}[served]; err != nil || !strings.Contains(out, word) {
				return fmt.Errorf("%s: %s at %s: %q, %w: want %s", when, who, a, out, err, word)
			}
		}
		return nil
	}
	admits := func(when string) {
		t.Helper()
		c.must(within(bound, func() error { return asks(when, true, "friend", servers...) }))
		c.must(within(bound, func() error { return asks(when, false, "foe", servers...) }))
	}
	admits("at first")
	for name, a := range c.agents {
		c.must(a.end(syscall.SIGKILL, bound))
		c.startAgent(name)
	}
	admits("after other agents have begun")
	for _, task := range c.until("", func(*status.Status) string { return "" }).Tasks {
		if task.Restarts > 0 {
			t.Errorf("%s was restarted", task.Name)
		}
	}
	c.keeperKilled("crew/web/0", func(address string) error { return asks("after its keeper was killed", true, "friend", address) })
	admits("after that")
	c.converge(c.commit("no tasks\n\nMuster-Allow-Prune: 100", map[string][]byte{teamFile: nil}))
}
