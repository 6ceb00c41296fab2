package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

// marks are plaintexts that nothing else has: of a secret, of another version of it, and of
// one that is in the environment.
var marks = []string{"zq1-first-Hu4mphZZw0", "zq2-other-Hu4mphZZw1", "zq3-token-Hu4mphZZw2"}

// forms are what a mark looks like, in what is searched for it.
func forms(mark string) [][]byte {
	b := []byte(mark)
	return [][]byte{b, []byte(hex.EncodeToString(b)), []byte(base64.StdEncoding.EncodeToString(b[:len(b)/3*3]))}
}

// leaked returns the marks that b has.
func leaked(b []byte) []string {
	var found []string
	for _, mark := range marks {
		for _, form := range forms(mark) {
			if bytes.Contains(b, form) {
				found = append(found, mark)
			}
		}
	}
	return found
}

// tap stands between the agent and the master, and keeps what they say.
type tap struct {
	mu   sync.Mutex // guards said
	said bytes.Buffer
}

func (w *tap) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.said.Write(p)
}

// newTap listens at path for what goes to the socket to.
func newTap(t *testing.T, path, to string) *tap {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	w := &tap{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
				serving.Go(func() {
					_, _ = io.Copy(io.MultiWriter(ends[0], w), ends[1])
					_, _ = ends[0].Close(), ends[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = l.Close() }) // the connections end with the cell
	return w
}

// secretive are the secrets of a team, sealed for an identity that masters have.
type secretive struct {
	t        *testing.T
	identity string // a file
	to       sealed.Recipient
	age      map[string]string // by the names of secrets
}

func newSecretive(t *testing.T) *secretive {
	t.Helper()
	secret, to, err := sealed.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := &secretive{t, filepath.Join(t.TempDir(), "identity"), to, map[string]string{}}
	if err := os.WriteFile(s.identity, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// secretCell is a cell whose master opens secrets, and whose link is listened to.
type secretCell struct {
	*cell
	*secretive
	tap *tap
}

func newSecretCell(t *testing.T) *secretCell {
	t.Helper()
	c := &secretCell{cell: prepare(t), secretive: newSecretive(t)}
	c.follows = append(c.follows, "--secret-identity", c.identity)
	c.initRepo()
	c.must(os.Mkdir(c.path("link"), 0o700))
	c.must(os.Mkdir(c.path("tap"), 0o700))
	c.tap = newTap(t, c.path("tap", "agent.sock"), c.path("link", "agent.sock"))
	c.startMaster()
	c.until("the master answers", func(*status.Status) string { return "" })
	c.startSecretAgent()
	c.joined()
	memory := c.memory().Root()
	t.Cleanup(func() { // of tasks that were killed with the agent, if the test has failed
		if t.Failed() {
			_ = os.RemoveAll(memory)
		}
	})
	return c
}

// startSecretAgent starts an agent that is connected through the tap.
func (c *secretCell) startSecretAgent() {
	c.cell.t.Helper()
	a, err := launch(c.path("agent.log"), filepath.Join(c.bin, "muster-agent"),
		"--cell", cellName, "--master", "unix:"+c.path("tap", "agent.sock"), "--name", machine, "--state-dir", c.state, "--writable", c.path("journals"))
	c.must(err)
	c.agent = a
}

// seal makes plain a secret of the team.
func (s *secretive) seal(name, plain string) {
	s.t.Helper()
	text, err := sealed.Seal([]byte(plain), []sealed.Recipient{s.to}, cellName+"/crew")
	if err != nil {
		s.t.Fatal(err)
	}
	s.age[name] = text
}

// secretScript shows what a task has without saying it.
const secretScript = `
	show() { sha256sum <"$MUSTER_SECRETS_DIR/password" | cut -c-16; }
	trap 'echo signal $(show)' HUP
	echo start $(show) $(printf %s "$TOKEN" | sha256sum | cut -c-16) $(stat -c %a "$MUSTER_SECRETS_DIR/password")
	while :; do sleep 0.05; done`

// jobs returns the team's package: two jobs that know the password, of which one is
// restarted by a change of it, and one that knows nothing.
func (s *secretive) jobs() []byte {
	s.t.Helper()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		return string(b)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "package crew\n\nimport \"%s/muster\"\n", module)
	for _, name := range []string{"password", "token"} {
		fmt.Fprintf(&b, "\nsecret: %s: muster.#Secret & {user: \"crew\", cell: %q, age: %s}\n", name, cellName, text(s.age[name]))
	}
	for name, of := range map[string]string{
		"restarts": `password: {}, token: env: "TOKEN"`,
		"reads":    `password: onChange: "signal"`,
	} {
		fmt.Fprintf(&b, `
job: %s: muster.#Job & {
	user: "crew", cell: %q
	task: {
		process: command: ["/bin/bash", "-c", %s]
		secrets: {%s}
		resources: {cpuMilli: 5, ramBytes: 32Mi, diskBytes: 16Mi}
		graceSeconds: 1
	}
}
`, name, cellName, text(strings.ReplaceAll(secretScript, "$", "$$")), of)
	}
	return []byte(b.String())
}

// commitJobs commits them, and waits for the cell.
func (c *secretCell) commitJobs(message string) string {
	c.cell.t.Helper()
	hash := c.commit(message, map[string][]byte{teamFile: c.jobs()})
	c.converge(hash)
	return hash
}

// sees waits until the log of a task has a line.
func (c *secretCell) sees(job, line string) {
	c.cell.t.Helper()
	var said string
	c.check(eventually(func() error {
		if said = c.says("logs", "crew/"+job+"/0"); strings.Contains(said, line+"\n") {
			return nil
		}
		return fmt.Errorf("%s says %q, want %q", job, said, line)
	}))
}

// TestSecrets runs jobs with secrets by real parts, changes the secrets, and kills what
// holds them: what the tasks know is in clear in their own memory, and nowhere else.
func TestSecrets(t *testing.T) {
	t.Parallel()
	c := newSecretCell(t)
	c.until("the agent says what it can", func(s *status.Status) string {
		if m := s.Machines[0]; m.Attributes[schema.HasSecrets] != "true" {
			t.Skipf("NOT TESTED: needs a file system in memory: %v", m.Notes)
		}
		return ""
	})
	c.seal("password", marks[0])
	c.seal("token", marks[2])
	first := c.commitJobs("two secrets")
	c.sees("restarts", "start "+short(marks[0])+" "+short(marks[2])+" 400")
	c.sees("reads", "start "+short(marks[0])+" "+short("")+" 400")
	was := c.converge(first)

	// The same, sealed anew, changes nothing.
	c.seal("password", marks[0])
	c.seal("token", marks[2])
	now := c.converge(c.commitJobs("sealed again"))
	for _, name := range []string{"crew/restarts/0", "crew/reads/0"} {
		if a, b := taskOf(was, name), taskOf(now, name); a.PID != b.PID || a.PID == 0 {
			t.Errorf("%s is process %d after its secrets were sealed again, and was %d", name, b.PID, a.PID)
		}
	}

	// Another password does what each job says.
	c.seal("password", marks[1])
	now = c.converge(c.commitJobs("another password"))
	c.sees("restarts", "start "+short(marks[1])+" "+short(marks[2])+" 400")
	c.sees("reads", "signal "+short(marks[1]))
	if a, b := taskOf(was, "crew/reads/0"), taskOf(now, "crew/reads/0"); a.PID != b.PID {
		t.Errorf("crew/reads/0 is process %d, and was %d", b.PID, a.PID)
	}
	c.silent(first)

	// An agent that comes after has what is on disk, and no master: a task whose keeper
	// was killed starts again.
	c.must(c.agent.end(syscall.SIGKILL, bound))
	c.must(c.master.end(syscall.SIGKILL, bound))
	c.killNewest("restarts")
	c.startSecretAgent()
	c.check(eventually(func() error {
		again, err := filepath.Glob(filepath.Join(c.state, "tasks", cellName, "crew", "restarts", "0", "*", "2", "stdout*"))
		if err == nil && len(again) == 0 {
			err = errors.New("crew/restarts/0 has not started again")
		}
		return err
	}))
	c.api.Close()
	c.api = nil
	c.startMaster()
	c.until("both run", func(s *status.Status) string {
		for _, name := range []string{"crew/restarts/0", "crew/reads/0"} {
			if task := taskOf(s, name); task.State != status.TaskRunning || s.Machines[0].Health != "up" {
				return fmt.Sprintf("%+v", task)
			}
		}
		return ""
	})
	c.sees("restarts", "start "+short(marks[1])+" "+short(marks[2])+" 400")
	c.noCores(c.agent.pid())
	c.noCores(c.master.pid())
	c.silent(first)

	// Nothing is left of tasks that have ended.
	memory := c.memory()
	c.converge(c.commit("no jobs", map[string][]byte{teamFile: nil}))
	c.check(eventually(func() error {
		list, err := os.ReadDir(memory.Root())
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("in memory: %v", list)
		}
		return err
	}))
	c.silent(first)
}

// killNewest kills the keeper of the newest generation of a job's first task.
func (c *secretCell) killNewest(job string) {
	c.cell.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.state, "tasks", cellName, "crew", job, "0", "*", "1", keeper.StateFile))
	if err != nil || len(files) == 0 {
		c.cell.t.Fatalf("no state of a keeper of %s: %v", job, err)
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	b, err := os.ReadFile(files[len(files)-1])
	c.must(err)
	var state keeper.State
	c.must(json.Unmarshal(b, &state))
	c.noCores(state.Keeper.PID)
	c.must(syscall.Kill(state.Keeper.PID, syscall.SIGKILL))
}

// short is what the tasks show of a secret.
func short(plain string) string {
	return strings.TrimPrefix(string(schema.DigestBytes([]byte(plain))), "sha256:")[:16]
}

// memory is where the agent keeps what its tasks were given.
func (c *secretCell) memory() *secrets.Machine {
	c.cell.t.Helper()
	m, err := secrets.Open(c.state)
	c.must(err)
	return m
}

// silent searches all that the cell has written, said and shown for the marks.
func (c *secretCell) silent(since string) {
	c.cell.t.Helper()
	files := silentIn(c.cell.t, c.dir)
	c.tap.mu.Lock()
	if found := leaked(c.tap.said.Bytes()); len(found) > 0 {
		c.cell.t.Errorf("the link has carried %q in clear", found)
	}
	if n := c.tap.said.Len(); n < 1000 || files < 20 {
		c.cell.t.Errorf("%d bytes and %d files were searched: fewer than there are", n, files)
	}
	c.tap.mu.Unlock()
	for _, args := range [][]string{
		{"status", "-o", "json"},
		{"status", "crew/restarts"},
		{"why", "crew/restarts/0"},
		{"events", "-o", "json"},
		{"logs", "crew/reads/0"},
		{"render", c.repo},
		{"diff", since + "..HEAD"},
		{"validate", "-o", "json"},
	} {
		cmd := c.command(args...)
		cmd.Env, cmd.Dir = append(os.Environ(), "MUSTER_MASTER="+c.url), c.repo
		b, err := cmd.CombinedOutput()
		if len(b) < 40 || bytes.Contains(b, []byte("unknown flag")) { // of a job that is gone it says so
			c.cell.t.Errorf("muster %s says nothing: %v, %q", strings.Join(args, " "), err, b)
		}
		if found := leaked(b); len(found) > 0 {
			c.cell.t.Errorf("muster %s says %q in clear", strings.Join(args, " "), found)
		}
	}
	list, err := ofCell(c.dir)
	c.must(err)
	for _, p := range list {
		text := p.words()
		if strings.HasPrefix(text, c.bin) { // the environment of others is a task's
			text += p.environ()
		}
		if found := leaked([]byte(text)); len(found) > 0 {
			c.cell.t.Errorf("process %d, %s, shows %q", p.pid, p.words(), found)
		}
	}
}

// silentIn searches the files below dir for the marks, and returns how many there are.
func silentIn(t *testing.T, dir string) (files int) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(name)
		files++
		if found := leaked(b); len(found) > 0 {
			t.Errorf("%s has %q in clear", name, found)
		}
		return ignoreGone(err)
	}); err != nil {
		t.Error(err)
	}
	return files
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// noCores wants that no core file of a process is written.
func (c *secretCell) noCores(pid int) {
	c.cell.t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "limits"))
	c.must(err)
	for line := range strings.Lines(string(b)) {
		if limit, ok := strings.CutPrefix(line, "Max core file size"); ok && strings.Fields(limit)[0] != "0" && strings.Fields(limit)[0] != "1" {
			c.cell.t.Errorf("process %d may write a core file: %s", pid, line)
		}
	}
}

// TestSecretsOfReplica: a machine whose master does not lead gets its secrets from that one, and
// neither the masters nor their store have them in clear.
func TestSecretsOfReplica(t *testing.T) {
	t.Parallel()
	s := newSecretive(t)
	p := newSeveral(t, 2, 2*time.Second, "--secret-identity", s.identity)
	leads, others := p.leader()
	p.startAgentOf(others[0])
	s.seal("password", marks[0])
	s.seal("token", marks[2])
	commit := p.commit("two secrets", map[string][]byte{teamFile: s.jobs()})
	p.await(leads, "the cell converges", func(now *status.Status) string { return notYet(now, commit) })
	want := "start " + short(marks[0]) + " " + short(marks[2]) + " 400\n"
	if err := eventually(func() error {
		if out := p.muster(p.urls[leads], "logs", "crew/restarts/0"); !bytes.Contains(out, []byte(want)) {
			return fmt.Errorf("the task says %q, want %q", out, want)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{p.dir, filepath.Dir(p.etcd.Certs)} {
		if n := silentIn(t, dir); n < 5 {
			t.Errorf("%s has %d files: fewer than there are", dir, n)
		}
	}
}
