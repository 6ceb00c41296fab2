package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// contained is a job whose tasks run in an image.
type contained struct {
	name, image string
	of          string // further fields of container, as CUE
	tasks       int    // 0 is one
}

// webScript serves a file by HTTP.
const webScript = `echo task $MUSTER_TASK_INDEX serves; mkdir /tmp/www; echo hello >/tmp/www/index.html; exec httpd -f -p 127.0.0.1:$MUSTER_PORT_HTTP -h /tmp/www`

// containers returns a package of jobs whose tasks serve HTTP, if they start.
func containers(jobs ...contained) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "package crew\n\nimport \"%s/muster\"\n", module)
	for _, j := range jobs {
		fmt.Fprintf(&b, `
job: %q: muster.#Job & {
	user: "crew", cell: %q, tasks: %d
	task: {
		container: {image: %q, %s}
		resources: {cpuMilli: 5, ramBytes: 32Mi, diskBytes: 16Mi, ports: ["http"]}
		health: {http: port: "http", intervalSeconds: 1, timeoutSeconds: 10}
		restart: delaySeconds: 1
		graceSeconds: 1
	}
}
`, j.name, cellName, max(1, j.tasks), j.image, j.of)
	}
	return []byte(b.String())
}

// TestContainers runs containers by all parts of a cell, of which one after the other
// fails: each failure has its words, none harms what runs, and nothing is left.
func TestContainers(t *testing.T) {
	t.Parallel()
	c := newCell(t)
	c.until("the agent says what it can", func(s *status.Status) string {
		if m := s.Machines[0]; m.Attributes[schema.HasContainers] != "true" {
			t.Skipf("NOT TESTED: needs a runtime of containers: %v", m.Notes)
		}
		return ""
	})
	layer := imagetest.Busybox(t, nil)
	image := func(name string) imagetest.Image { // each with a digest of its own
		return imagetest.Of(t, layer, imagetest.Settings{Entrypoint: []string{"/bin/sh", "-c"}, Command: []string{webScript}, Env: []string{"PATH=/bin", "IMAGE=" + name}})
	}

	// A registry that answers nothing.
	silent := imagetest.NewRegistry(t)
	asked := make(chan struct{}, 100)
	silent.Fault("hang", func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	var jobs []contained
	for i := range 2 { // as many as are pulled from it at once
		name := fmt.Sprint("hang-", i)
		jobs = append(jobs, contained{name: name, image: silent.Add("hang", image(name))})
	}
	c.commit("no answer", map[string][]byte{teamFile: containers(jobs...)})
	<-asked

	// One that is broken in all other ways, and one that works.
	broken, registry := imagetest.NewRegistry(t), imagetest.NewRegistry(t)
	for _, name := range []string{"mangled", "secret", "nowhere"} {
		jobs = append(jobs, contained{name: name, image: broken.Add(name, image(name))})
	}
	down := imagetest.NewRegistry(t)
	works := registry.Add("web", image("web"))
	jobs = append(jobs, contained{name: "late", image: down.Add("late", image("late"))},
		contained{name: "nocommand", image: works, of: `command: ["/bin/nothing"]`},
		contained{name: "nouser", image: works, of: `user: "nobody-here"`},
		contained{name: "web", image: works, tasks: 3})
	broken.Fault("mangled", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"schemaVersion": 2}`) })
	broken.Fault("secret", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	broken.Fault("nowhere", http.NotFound)
	down.Down()
	c.commit("containers", map[string][]byte{teamFile: containers(jobs...)})
	web := c.healthy("web", 3)
	c.causes(map[string]string{
		"hang-0":    "its image is being pulled: ",
		"hang-1":    "its image is being pulled: ",
		"mangled":   "its image cannot be pulled, and is tried again: " + jobs[2].image[:strings.IndexByte(jobs[2].image, '@')] + ", manifests/sha256:",
		"secret":    "not authorized by the registry: it wants credentials",
		"nowhere":   "not in the registry",
		"late":      "registry unavailable: dial tcp ",
		"nocommand": "the command cannot be executed: exec /bin/nothing: no such file or directory (in a container of " + works + ")",
		"nouser":    `user "nobody-here" is not in /etc/passwd of the image`,
	})

	// All that waits for a registry starts once there is one.
	for _, name := range []string{"mangled", "secret", "nowhere"} {
		broken.Fault(name, nil)
	}
	down.Up()
	if got := c.says("logs", "crew/web/1"); got != "task 1 serves\n" {
		t.Errorf("logs: %q", got)
	}
	if got := c.says("exec", "crew/web/2", "--", "sh", "-c", "echo $MUSTER_TASK_INDEX $IMAGE; cat /tmp/www/index.html"); got != "2 web\nhello\n" {
		t.Errorf("exec: %q", got)
	}

	// Without a registry, what is on the machine starts.
	registry.Down()
	c.killKeeper("web", 0)
	c.until("crew/web/0 runs again", func(s *status.Status) string {
		now := taskOf(s, "crew/web/0")
		if now.Incarnation == web["crew/web/0"].Incarnation+1 && now.Health == schema.Healthy && strings.Contains(now.History[0], "its keeper was killed") {
			return ""
		}
		return fmt.Sprintf("%+v", now)
	})
	jobs[len(jobs)-1].tasks = 4
	c.commit("one more", map[string][]byte{teamFile: containers(jobs...)})
	web = c.healthy("web", 4)
	for _, name := range []string{"mangled", "secret", "nowhere", "late"} {
		c.healthy(name, 1)
	}

	// A new agent has what the one before it had.
	var joined time.Time
	c.until("the cell answers", func(s *status.Status) string { joined = s.Machines[0].Place.Since; return "" })
	c.must(c.agent.end(syscall.SIGKILL, bound))
	c.startAgent()
	c.until("the new agent joins", func(s *status.Status) string {
		if m := s.Machines[0]; m.Place.Since.After(joined) {
			return ""
		}
		return fmt.Sprintf("%+v", s.Machines[0])
	})
	for name, now := range c.healthy("web", 4) {
		if was := web[name]; now.PID != was.PID || now.Incarnation != was.Incarnation {
			t.Errorf("%s is process %d of incarnation %d after its agent was killed, and was %d of %d", name, now.PID, now.Incarnation, was.PID, was.Incarnation)
		}
	}
	c.until("the machine has no fault", func(s *status.Status) string {
		if m := s.Machines[0]; len(m.Conditions) > 0 || m.Health != string(model.HealthUp) {
			return fmt.Sprintf("%+v", m)
		}
		return ""
	})

	c.check(mounted(c.agent.pid(), c.dir)) // also while containers run
	if mounted(web["crew/web/1"].PID, c.dir) == nil {
		t.Error("no mount of the cell in a container: what looks for those that are left finds none")
	}
}

// taskOf returns a task of the status, one without a name if it is not there.
func taskOf(s *status.Status, name string) status.TaskStatus {
	for i := range s.Tasks {
		if s.Tasks[i].Name == name {
			return s.Tasks[i]
		}
	}
	return status.TaskStatus{}
}

// healthy waits until so many tasks of a job run and are healthy, and returns them.
func (c *cell) healthy(job string, n int) map[string]status.TaskStatus {
	c.t.Helper()
	tasks := map[string]status.TaskStatus{}
	c.until(job+" is healthy", func(s *status.Status) string {
		var missing []string
		for i := range n {
			name := fmt.Sprintf("crew/%s/%d", job, i)
			if tasks[name] = taskOf(s, name); tasks[name].State != status.TaskRunning || tasks[name].Health != schema.Healthy {
				missing = append(missing, fmt.Sprintf("%+v", tasks[name]))
			}
		}
		return strings.Join(missing, "; ")
	})
	return tasks
}

// causes waits until the status has a text for the first task of each job, and wants it
// of muster why as well.
func (c *cell) causes(want map[string]string) {
	c.t.Helper()
	c.until("the causes", func(s *status.Status) string {
		var missing []string
		for job, text := range want {
			if ts := taskOf(s, "crew/"+job+"/0"); !strings.Contains(ts.Reason, text) && !strings.Contains(strings.Join(ts.History, "\n"), text) {
				missing = append(missing, fmt.Sprintf("%s: %+v, want %q", job, ts, text))
			}
		}
		return strings.Join(missing, "\n")
	})
	for job, text := range want {
		if said := c.says("why", "crew/"+job+"/0"); !strings.Contains(strings.Join(strings.Fields(said), " "), text) {
			c.t.Errorf("muster why crew/%s/0 lacks %q:\n%s", job, text, said)
		}
	}
}

// says returns what a command of muster prints.
func (c *cell) says(args ...string) string {
	c.t.Helper()
	cmd := c.command(args...)
	cmd.Env = append(os.Environ(), "MUSTER_MASTER="+c.url)
	b, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("muster %s: %v\n%s", strings.Join(args, " "), err, b)
	}
	return string(b)
}

// killKeeper kills the keeper of a task.
func (c *cell) killKeeper(job string, index int) {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.state, fmt.Sprintf("tasks/%s/crew/%s/%d/*/*/%s", cellName, job, index, keeper.StateFile)))
	if err != nil || len(files) != 1 {
		c.t.Fatalf("states of keepers: %q, %v, want one", files, err)
	}
	b, err := os.ReadFile(files[0])
	c.must(err)
	var state keeper.State
	c.must(json.Unmarshal(b, &state))
	c.must(syscall.Kill(state.Keeper.PID, syscall.SIGKILL))
}
