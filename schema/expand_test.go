package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/schema"
	"pgregory.net/rapid"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": "", "MUSTER_PORT_HTTP": "8080"}
	// The cases of Kubernetes' own rule: $$ escapes, the unknown stays.
	for in, want := range map[string]string{
		"":                           "",
		"plain":                      "plain",
		"$(A)":                       "1",
		"x$(A)y$(A)":                 "x1y1",
		"--port=$(MUSTER_PORT_HTTP)": "--port=8080",
		"$(EMPTY)":                   "",
		"$(B)":                       "$(A)",
		"$(UNKNOWN)":                 "$(UNKNOWN)",
		"$()":                        "$()",
		"$$(A)":                      "$(A)",
		"$$$(A)":                     "$1",
		"$$$$(A)":                    "$$(A)",
		"$$HOME":                     "$HOME",
		"$HOME":                      "$HOME",
		"$":                          "$",
		"a$":                         "a$",
		"$$":                         "$",
		"$(A":                        "$(A",
		"$(A$(A)":                    "$(A$(A)",
		"($(A))":                     "(1)",
		"$a$(A)":                     "$a1",
		"$-$(A)":                     "$-1",
		"ä$(A)ü":                     "ä1ü",
	} {
		if got := schema.Expand(in, vars); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

// Doubling every $ is how a user gets a text through unharmed.
func TestExpandEscaped(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.SampledFrom([]rune("$()AB ü"))).Draw(t, "text")
		escaped := ""
		for _, r := range s {
			if r == '$' {
				escaped += "$"
			}
			escaped += string(r)
		}
		if got := schema.Expand(escaped, map[string]string{"A": "x", "": "y"}); got != s {
			t.Fatalf("Expand(%q) = %q, want %q", escaped, got, s)
		}
	})
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	a := schema.Assignment{
		Task:  schema.JobName{Cell: "local", User: "search", Job: "web"}.Task(2),
		Ports: schema.PortsOf(map[string]int{"http": 20001, "my-admin": 20002}), Devices: []schema.DeviceUse{{Kind: "gpu", Index: 3, Milli: schema.DeviceMilli}, {Kind: "gpu", Index: 1, Milli: schema.DeviceMilli}},
		Job: &schema.Job{Task: schema.TaskSpec{
			Resources: schema.TaskResources{FirstOf: []schema.ResourceAlternative{{Devices: map[string]schema.DeviceAsk{"tpu": {Count: 1}}}, {Devices: map[string]schema.DeviceAsk{"gpu": {Count: 2}}}}},
			Process:   schema.Process{Command: []string{"/bin/web", "--port=$(MUSTER_PORT_HTTP)", "$(GREETING)", "$(NONE)", "$$(A)"}},
			Env: map[string]string{
				"GREETING":   "hello $(MUSTER_USER) on $(MUSTER_PORT_MY_ADMIN)",
				"OTHER":      "$(GREETING)",
				"MUSTER_JOB": "forged",
			},
		}},
	}
	want := map[string]string{
		"PATH":                 schema.DefaultPath,
		"GREETING":             "hello search on 20002",
		"OTHER":                "$(GREETING)",
		"MUSTER_CELL":          "local",
		"MUSTER_USER":          "search",
		"MUSTER_JOB":           "web",
		"MUSTER_TASK_INDEX":    "2",
		"MUSTER_DEVICE_GPU":    "1,3",
		"MUSTER_DEVICE_TPU":    "", // of the alternative that it did not get
		"MUSTER_PORT_HTTP":     "20001",
		"MUSTER_PORT_MY_ADMIN": "20002",
	}
	if diff := cmp.Diff(want, a.Environment()); diff != "" {
		t.Errorf("Environment (-want +got):\n%s", diff)
	}
	command := []string{"/bin/web", "--port=20001", "hello search on 20002", "$(NONE)", "$(A)"}
	if diff := cmp.Diff(command, a.Command()); diff != "" {
		t.Errorf("Command (-want +got):\n%s", diff)
	}
	if a.Job.Task.Process.Command[4] != "$$(A)" {
		t.Error("Command wrote to the job's data")
	}
}
