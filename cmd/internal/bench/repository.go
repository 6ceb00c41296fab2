package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	schemacue "github.com/musterhq/muster/schema/cue"
)

const (
	cellName = "local"
	branch   = "refs/heads/main"
	// versionVariable is the variable of tasks that commits change.
	versionVariable = "VERSION"
	jobsPerPackage  = 50
	editedJob       = "probe/edited"
	rolledJob       = "probe/rolled"
	arrivingUser    = "arriving"
)

// repository is a config repository with a work tree.
type repository struct {
	dir              string
	services, rolled int // jobs, and tasks of the job that is updated
	perMachine       int // tasks
}

// newRepository makes a repository without jobs for a cell of so many machines, and of so many
// tasks for each.
func newRepository(ctx context.Context, dir string, machines, perMachine int) (*repository, error) {
	r := &repository{dir: dir, services: max(machines*perMachine/tasksPerJob, 1), rolled: min(rolledTasks, machines), perMachine: perMachine}
	files := map[string]string{
		"cue.mod/module.cue": "module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n",
		"cells/cell.cue":     "package cells\n\ncell: local: {quota: \"off\", maxTasks: 10_000_000, lost: {domain: \"rack\", maxPercent: 30, tasksPerMinute: 6000, burst: 100}}\n",
	}
	for name, b := range schemacue.Files() {
		files["muster/"+name] = string(b)
	}
	if err := r.write(files); err != nil {
		return nil, err
	}
	if _, err := r.git(ctx, "init", "-q", "--initial-branch=main"); err != nil {
		return nil, err
	}
	next, err := r.commit(ctx, "a cell without jobs")
	if err != nil {
		return nil, err
	}
	_, err = next.publish(ctx)
	return r, err
}

// tasks is how many the cell has.
func (r *repository) tasks() int { return r.services*tasksPerJob + editedTasks + r.rolled }

// declare makes the commit with all jobs.
func (r *repository) declare(ctx context.Context) (*next, error) {
	files := map[string]string{}
	for first := 0; first < r.services; first += jobsPerPackage {
		name := fmt.Sprintf("t%03d", first/jobsPerPackage)
		var b strings.Builder
		b.WriteString(header(name))
		for j := first; j < min(first+jobsPerPackage, r.services); j++ {
			b.WriteString(r.job(fmt.Sprintf("service-%04d", j), name, tasksPerJob, tasksPerJob, "first"))
		}
		files["teams/"+name+"/jobs.cue"] = b.String()
	}
	files["probe/edited/job.cue"] = header("edited") + r.job("edited", "probe", editedTasks, editedTasks, "first")
	files["probe/rolled/job.cue"] = header("rolled") + r.job("rolled", "probe", r.rolled, rolledAtOnce, "first")
	if err := r.write(files); err != nil {
		return nil, err
	}
	return r.commit(ctx, "all jobs")
}

// edit makes a commit that changes one line of a small job.
func (r *repository) edit(ctx context.Context, version string) (*next, error) {
	return r.change(ctx, "probe/edited/job.cue", header("edited")+r.job("edited", "probe", editedTasks, editedTasks, version))
}

// rollOut makes a commit that changes one line of a large job.
func (r *repository) rollOut(ctx context.Context, version string) (*next, error) {
	return r.change(ctx, "probe/rolled/job.cue", header("rolled")+r.job("rolled", "probe", r.rolled, rolledAtOnce, version))
}

// arrive makes a commit that declares a batch job of so many tasks, in the place of the one
// before.
func (r *repository) arrive(ctx context.Context, name string, tasks int) (*next, error) {
	text := header("arriving") + fmt.Sprintf(`
job: "%s": muster.#Job & {
	user: "%s", cell: "%s"
	kind:     "batch"
	priority: "batch"
	tasks:    %d
	task: {
		process: command: ["/usr/bin/work"]
		resources: {cpuMilli: 100, ramBytes: 64Mi, diskBytes: 64Mi}
		env: %s: "%s"
	}
}
`, name, arrivingUser, cellName, tasks, versionVariable, name)
	return r.change(ctx, "arriving/job.cue", text)
}

func (r *repository) change(ctx context.Context, file, text string) (*next, error) {
	if err := r.write(map[string]string{file: text}); err != nil {
		return nil, err
	}
	return r.commit(ctx, "change "+file)
}

func header(name string) string {
	return "package " + name + "\n\nimport \"example.com/config/muster\"\n"
}

// job returns a job whose tasks take a tenth of an average machine, all on it together.
func (r *repository) job(name, user string, tasks, atOnce int, version string) string {
	return fmt.Sprintf(`
job: "%s": muster.#Job & {
	user: "%s", cell: "%s"
	priority: "production"
	tasks:    %d
	labels: {tier: "front", component: "search", stage: "production"}
	task: {
		process: command: ["/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)", "--shard=$(MUSTER_TASK_INDEX)", "--log=info"]
		resources: {cpuMilli: %d, ramBytes: %dMi, diskBytes: %dMi, ports: ["http"]}
		env: {
			%s:      "%s"
			BACKEND:      "local/search/backend"
			CACHE_BYTES:  "1073741824"
			TRACE_SAMPLE: "0.01"
		}
		graceSeconds: 5
		health: http: {port: "http", path: "/healthz"}
	}
	update: maxParallel: %d
}
`, name, user, cellName, tasks, 3000/r.perMachine, 5<<10/r.perMachine, 10<<10/r.perMachine, versionVariable, version, atOnce)
}

func (r *repository) write(files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(r.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// next is a commit that the branch does not point to yet.
type next struct {
	repository *repository
	hash       string
}

// commit makes a commit of the work tree.
func (r *repository) commit(ctx context.Context, message string) (*next, error) {
	if _, err := r.git(ctx, "add", "-A"); err != nil {
		return nil, err
	}
	tree, err := r.git(ctx, "write-tree")
	if err != nil {
		return nil, err
	}
	args := []string{"commit-tree", "-m", message, tree}
	if parent, err := r.git(ctx, "rev-parse", "--verify", "-q", branch); err == nil {
		args = append(args, "-p", parent)
	}
	hash, err := r.git(ctx, args...)
	return &next{r, hash}, err
}

// publish has the branch point to the commit, and returns when that began: what came
// before it is git's time, and not the cell's.
func (n *next) publish(ctx context.Context) (began time.Time, err error) {
	began = time.Now()
	_, err = n.repository.git(ctx, "update-ref", branch, n.hash)
	return began, err
}

func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // as the callers say
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
