package reconciler_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	health := func(path string) *schema.Health {
		return &schema.Health{HTTP: &schema.HTTPCheck{Port: "http", Path: path}}
	}
	tests := []struct {
		name   string
		change func(*schema.Job)
		want   intent.Change
		fields []string
	}{
		{"nothing", func(*schema.Job) {}, intent.Unchanged, nil},
		{"nil and empty are the same", func(j *schema.Job) { j.Labels, j.Task.Env = map[string]string{}, map[string]string{} }, intent.Unchanged, nil},
		{"tasks", func(j *schema.Job) { j.Tasks++ }, intent.InPlace, []string{"tasks: in place"}},
		{"priority", func(j *schema.Job) { j.Priority++ }, intent.InPlace, []string{"priority: in place"}},
		{"labels", func(j *schema.Job) { j.Labels = map[string]string{"a": "b"} }, intent.InPlace, []string{"labels: in place"}},
		{"update", func(j *schema.Job) { j.Update.MaxParallel++ }, intent.InPlace, []string{"update: in place"}},
		{"grace", func(j *schema.Job) { j.Task.GraceSeconds++ }, intent.InPlace, []string{"task.graceSeconds: in place"}},
		{"health", func(j *schema.Job) { j.Task.Health = health("/new") }, intent.InPlace, []string{"task.health: in place"}},
		{"logs", func(j *schema.Job) { j.Task.Logs = &schema.Logs{MaxBytes: 1 << 20, Files: 2} }, intent.InPlace, []string{"task.logs: in place"}},
		{"processes", func(j *schema.Job) { j.Task.Limits = &schema.Limits{Processes: 10} }, intent.InPlace, []string{"task.limits.processes: in place"}},
		{"the limits that are the default", func(j *schema.Job) { j.Task.Limits = &schema.Limits{Processes: schema.DefaultProcesses} }, intent.Unchanged, nil},
		{"files", func(j *schema.Job) { j.Task.Limits = &schema.Limits{Processes: schema.DefaultProcesses, Files: 64} }, intent.Restart, []string{"task.limits.files: restart"}},
		{"core files", func(j *schema.Job) { j.Task.Limits = &schema.Limits{Processes: schema.DefaultProcesses, CoreBytes: 1} }, intent.Restart, []string{"task.limits.coreBytes: restart"}},
		{"command", func(j *schema.Job) { j.Task.Process.Command = []string{"other"} }, intent.Restart, []string{"task.process.command: restart"}},
		{"env", func(j *schema.Job) { j.Task.Env = map[string]string{"A": "b"} }, intent.Restart, []string{"task.env: restart"}},
		{"a requirement of isolation", func(j *schema.Job) { j.Task.Isolation = &schema.Isolation{Require: true, Network: "host"} }, intent.Move, []string{"task.isolation.require: move"}},
		{"the isolation that is the default", func(j *schema.Job) { j.Task.Isolation = &schema.Isolation{Network: "host"} }, intent.Unchanged, nil},
		{"network", func(j *schema.Job) { j.Task.Isolation = &schema.Isolation{Network: "none"} }, intent.Restart, []string{"task.isolation.network: restart"}},
		{"files", func(j *schema.Job) { j.Task.Files = map[string]schema.TaskFile{"f": {}} }, intent.Restart, []string{"task.files: restart"}},
		{"before", func(j *schema.Job) { j.Task.Before = []schema.Before{{TimeoutSeconds: 1}} }, intent.Restart, []string{"task.before: restart"}},
		{"a stop command", func(j *schema.Job) { j.Task.Stop = &schema.Stop{Command: []string{"x"}, TimeoutSeconds: 1} }, intent.InPlace, []string{"task.stop.command: in place", "task.stop.timeoutSeconds: in place"}},
		{"a stop signal", func(j *schema.Job) { j.Task.Stop = &schema.Stop{Signal: "SIGINT"} }, intent.Restart, []string{"task.stop.signal: restart"}},
		{"a file that says so", func(j *schema.Job) { j.Task.Files = map[string]schema.TaskFile{"f": {OnChange: schema.ChangeNone}} }, intent.InPlace, []string{"task.files: in place"}},
		{"sticky", func(j *schema.Job) { j.Task.Sticky = schema.StickyHere }, intent.Restart, []string{"task.sticky: restart"}},
		{"root", func(j *schema.Job) { j.Task.Process.Root = "/x" }, intent.Restart, []string{"task.process.root: restart"}},
		{"a container for the process", func(j *schema.Job) { j.Task.Container, j.Task.Process = container(), schema.Process{} }, intent.Restart, []string{"task.container: restart", "task.isolation.network: restart", "task.process.command: restart"}},
		{"kind", func(j *schema.Job) { j.Kind = schema.Batch }, intent.Restart, []string{"kind: restart"}},
		{"more memory", func(j *schema.Job) { j.Task.Resources.RAMBytes++ }, intent.Resize, []string{"task.resources.ramBytes: resize"}},
		{"less memory", func(j *schema.Job) { j.Task.Resources.RAMBytes-- }, intent.InPlace, []string{"task.resources.ramBytes: in place"}},
		{
			"more CPU, less disk", func(j *schema.Job) { j.Task.Resources.CPUMilli++; j.Task.Resources.DiskBytes-- }, intent.Resize,
			[]string{"task.resources.cpuMilli: resize", "task.resources.diskBytes: in place"},
		},
		{"whole cores", func(j *schema.Job) { j.Task.Resources.WholeCores = true }, intent.Restart, []string{"task.resources.wholeCores: restart"}},
		{"class", func(j *schema.Job) { j.AppClass = schema.ClassBatch }, intent.InPlace, []string{"appclass: in place"}},
		{"the class that it had anyway", func(j *schema.Job) { j.AppClass = schema.ClassLatencySensitive }, intent.Unchanged, nil},
		{"exceed", func(j *schema.Job) { j.Task.Exceed = &schema.Exceed{RAM: true} }, intent.InPlace, []string{"task.exceed: in place"}},
		{"what it might exceed anyway", func(j *schema.Job) { j.Task.Exceed = &schema.Exceed{CPU: true} }, intent.Unchanged, nil},
		{"ports", func(j *schema.Job) { j.Task.Resources.Ports = nil }, intent.Restart, []string{"task.resources.ports: restart"}},
		{"constraints", func(j *schema.Job) { j.Constraints = []schema.Constraint{{Attribute: "a", Operator: "exists"}} }, intent.Move, []string{"constraints: move"}},
		{"alternatives", func(j *schema.Job) { j.AnyOf = []schema.Alternative{{}} }, intent.Move, []string{"anyOf: move"}},
		{"preferences", func(j *schema.Job) { j.Preferences = []schema.Preference{{Weight: 3}} }, intent.InPlace, []string{"preferences: in place"}},
		{"spread", func(j *schema.Job) { j.Spread = &schema.Spread{By: "zone"} }, intent.InPlace, []string{"spread: in place"}},
		{"maxSkew", func(j *schema.Job) { j.Spread = &schema.Spread{MaxSkew: map[string]int{"zone": 1}} }, intent.InPlace, []string{"spread: in place"}},
		{"tolerations", func(j *schema.Job) { j.Tolerations = []schema.Toleration{{Key: "dedicated"}} }, intent.InPlace, []string{"tolerations: in place"}},
		{"affinity", func(j *schema.Job) { j.Affinity = []schema.Affinity{{Selector: "tier=cache", By: "rack"}} }, intent.InPlace, []string{"affinity: in place"}},
		{"anti-affinity", func(j *schema.Job) { j.AntiAffinity = []schema.Affinity{{Selector: "tier=cache", By: "rack"}} }, intent.InPlace, []string{"antiAffinity: in place"}},
		{"preemption", func(j *schema.Job) { j.Preemptible = new(bool) }, intent.InPlace, []string{"preemptible: in place"}},
		{"the preemption that is the default", func(j *schema.Job) { yes := true; j.Preemptible = &yes }, intent.Unchanged, nil},
		{"a secret", func(j *schema.Job) { j.Task.Secrets = map[string]schema.TaskSecret{"key": {}} }, intent.Restart, []string{"task.secrets.key: restart"}},
		{"devices", func(j *schema.Job) { j.Task.Resources.Devices = map[string]schema.DeviceAsk{"gpu": {Count: 1}} }, intent.Restart, []string{"task.resources.devices: restart"}},
		{"alternatives", func(j *schema.Job) { j.Task.Resources.FirstOf = []schema.ResourceAlternative{{}} }, intent.Restart, []string{"task.resources.firstOf: restart"}},
		{
			"the greatest counts, and all are listed",
			func(j *schema.Job) { j.Tasks, j.Task.Process.Command, j.Priority = 9, []string{"other"}, 3 },
			intent.Restart,
			[]string{"priority: in place", "task.process.command: restart", "tasks: in place"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			old, next := service("u", "web", 3, "v"), service("u", "web", 3, "v")
			old.Task.Health, next.Task.Health = health("/"), health("/")
			tt.change(&next)
			got, changes := intent.Diff(&old, &next)
			var fields []string
			for _, c := range changes {
				fields = append(fields, fmt.Sprintf("%s: %s", c.Field, c.Change))
			}
			if got != tt.want || !slices.Equal(fields, tt.fields) {
				t.Errorf("%q, %v: want %q, %v", got, fields, tt.want, tt.fields)
			}
		})
	}
}

// TestDiffKnowsAllFields: a job has no field of which Diff does not know what a
// change of it does. It sets each to something else, however deep.
func TestDiffKnowsAllFields(t *testing.T) {
	t.Parallel()
	var walk func(v reflect.Value, path string, check func(path string))
	walk = func(v reflect.Value, path string, check func(string)) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name, check)
			}
			return
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem(), path, check)
			}
			return
		}
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default: // lists and maps
			v.SetZero()
		}
		check(path)
		v.Set(was)
	}
	full := func() schema.Job {
		j := service("u", "web", 3, "v")
		j.Labels, j.Annotations, j.Task.Env = map[string]string{"a": "b"}, map[string]string{"a": "b"}, map[string]string{"A": "b"}
		j.Task.Health = &schema.Health{
			HTTP: &schema.HTTPCheck{Port: "http", Path: "/", Headers: map[string]string{"a": "b"}},
			TCP:  &schema.TCPCheck{Port: "http"}, Exec: &schema.ExecCheck{Command: []string{"x"}},
		}
		j.Task.Restart = &schema.Restart{Attempts: 1}
		j.Task.Resources.PortNumbers = map[string]int{"http": 80}
		j.Task.Logs = &schema.Logs{MaxBytes: 1 << 20, Files: 3}
		j.Constraints = []schema.Constraint{{Attribute: "arch", Operator: "=", Value: "a"}}
		j.AnyOf = []schema.Alternative{{Constraints: j.Constraints}}
		j.Preferences = []schema.Preference{{Constraint: j.Constraints[0], Weight: 1}}
		j.Spread = &schema.Spread{By: "rack", Targets: map[string]int{"r1": 100}, Max: map[string]int{"rack": 1}, MaxSkew: map[string]int{"rack": 1}, MinDomains: map[string]int{"rack": 2}}
		j.Affinity = []schema.Affinity{{Selector: "tier=cache", By: "rack", Weight: 1}}
		j.AntiAffinity = j.Affinity
		j.Tolerations = []schema.Toleration{{Key: "dedicated", Value: "ml"}}
		j.Task.Resources.Devices = map[string]schema.DeviceAsk{"gpu": {Count: 1}}
		j.Task.Resources.FirstOf = []schema.ResourceAlternative{{Devices: j.Task.Resources.Devices}}
		j.Task.Exceed = &schema.Exceed{CPU: true}
		j.Prune = new(bool)
		j.Task.Isolation = &schema.Isolation{Network: schema.HostNetwork}
		j.Task.Container = container()
		j.Task.Before = []schema.Before{{TimeoutSeconds: 1}}
		j.Task.Stop = &schema.Stop{Command: []string{"x"}, TimeoutSeconds: 1, Signal: "SIGINT"}
		j.Task.Secrets = secrets("v", "c", "")
		j.Task.Packages = []schema.TaskPackage{{Name: "p", Digest: "d", From: "https://h/p", Path: "/p"}}
		j.Task.Volumes = map[string]schema.TaskVolume{"v": {Path: "/v", TmpBytes: 1}}
		j.Task.Files, j.Task.Process.Root = map[string]schema.TaskFile{"f": {Content: "c"}}, "/root"
		return j
	}
	old, next := full(), full()
	walk(reflect.ValueOf(&next), "", func(path string) {
		change, _ := intent.Diff(&old, &next)
		identity := slices.Contains([]string{".Name", ".User", ".Cell"}, path)
		if (change == intent.Unchanged) != identity {
			t.Errorf("a change of job%s is %q", path, change)
		}
	})
	if diff := cmp.Diff(old, next); diff != "" {
		t.Errorf("the walk left a change behind:\n%s", diff)
	}
}

// secrets returns what a task may know, of a version and a ciphertext.
func secrets(version, text string, change schema.OnChange) map[string]schema.TaskSecret {
	return map[string]schema.TaskSecret{"key": {OnChange: change, Sealed: &schema.SealedSecret{Version: version, Age: text}}}
}

// TestDiffSecrets: what counts is the plaintext, as far as it is known, and what its
// owner wants when that changes.
func TestDiffSecrets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		was, is map[string]schema.TaskSecret
		want    intent.Change
	}{
		{"nothing", secrets("1", "a", ""), secrets("1", "a", ""), intent.Unchanged},
		{"another ciphertext", secrets("1", "a", ""), secrets("1", "b", ""), intent.InPlace},
		{"another plaintext", secrets("1", "a", ""), secrets("2", "b", ""), intent.Restart},
		{"another plaintext, with a signal", secrets("1", "a", schema.ChangeSignal), secrets("2", "b", schema.ChangeSignal), intent.InPlace},
		{"another plaintext, which the next start finds", secrets("1", "a", schema.ChangeNone), secrets("2", "b", schema.ChangeNone), intent.InPlace},
		{"what nobody has opened", secrets("", "a", ""), secrets("", "b", ""), intent.Restart},
		{"a signal from now on", secrets("1", "a", ""), secrets("1", "a", schema.ChangeSignal), intent.Restart},
		{"none any more", secrets("1", "a", ""), nil, intent.Restart},
		{"another file", secrets("1", "a", ""), map[string]schema.TaskSecret{"key": {File: "k", Sealed: secrets("1", "a", "")["key"].Sealed}}, intent.Restart},
		{"its default name", secrets("1", "a", ""), map[string]schema.TaskSecret{"key": {File: "key", Mode: "0400", Sealed: secrets("1", "a", "")["key"].Sealed}}, intent.InPlace},
	} {
		old, next := service("u", "web", 3, "v"), service("u", "web", 3, "v")
		old.Task.Secrets, next.Task.Secrets = tt.was, tt.is
		if got, _ := intent.Diff(&old, &next); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if same := old.Task.RunDigest() == next.Task.RunDigest(); same != (tt.want != intent.Restart) {
			t.Errorf("%s: the run digests are the same: %t", tt.name, same)
		}
	}
}

func container() *schema.Container {
	return &schema.Container{Image: "a", Command: []string{"x"}, Args: []string{"y"}, Workdir: "/srv", User: "1", Runtime: schema.Crun}
}

// TestDiffAgreesWithRunDigest: what may stay in place is what the digest of a
// spec leaves out.
func TestDiffAgreesWithRunDigest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func() schema.Job {
			j := service("u", "web", rapid.IntRange(1, 2).Draw(t, "tasks"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "arg"))
			j.Task.GraceSeconds = rapid.IntRange(0, 1).Draw(t, "grace")
			j.Task.Resources.CPUMilli = int64(rapid.IntRange(1, 2).Draw(t, "cpu"))
			if rapid.Bool().Draw(t, "isolated") {
				j.Task.Isolation = &schema.Isolation{
					Require: rapid.Bool().Draw(t, "require"), User: rapid.Bool().Draw(t, "user"),
					Network: rapid.SampledFrom([]schema.Network{schema.HostNetwork, schema.NoNetwork}).Draw(t, "network"),
				}
			}
			if rapid.Bool().Draw(t, "contained") {
				j.Task.Container = container()
				j.Task.Before = []schema.Before{{TimeoutSeconds: 1}}
				j.Task.Stop = &schema.Stop{Command: []string{"x"}, TimeoutSeconds: 1, Signal: "SIGINT"}
				j.Task.Container.Image = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "image")
				j.Task.Container.ReadOnly = rapid.Bool().Draw(t, "read-only")
			}
			j.Task.Sticky = rapid.SampledFrom([]schema.Sticky{schema.NotSticky, schema.StickyHere, schema.StickyStay}).Draw(t, "sticky")
			for _, name := range []string{"f", "g"} {
				if rapid.Bool().Draw(t, name) {
					j.Task.Files = map[string]schema.TaskFile{name: {
						Content: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "content"), Signal: rapid.SampledFrom([]string{"", "SIGUSR1"}).Draw(t, "signal"),
						OnChange: rapid.SampledFrom([]schema.OnChange{"", schema.ChangeRestart, schema.ChangeSignal, schema.ChangeNone}).Draw(t, "on change"),
					}}
				}
			}
			if rapid.Bool().Draw(t, "env") {
				j.Task.Env = map[string]string{"A": strings.Repeat("b", rapid.IntRange(1, 2).Draw(t, "b"))}
			}
			return j
		}
		old, next := draw(), draw()
		change, _ := intent.Diff(&old, &next)
		if same := old.Task.RunDigest() == next.Task.RunDigest(); same != (change != intent.Restart) {
			t.Fatalf("Diff says %q, the run digests are the same: %t", change, same)
		}
	})
}
