package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhq/muster/cmd/internal/forge/forgetest"
)

// forges are the forges of a script, by kind.
type forges map[string]*running

type running struct {
	*forgetest.Forge
	server *httptest.Server
}

// workflows are where each forge finds the jobs of its CI.
var workflows = map[string]string{
	"github": ".github/workflows/muster.yml", "gitea": ".gitea/workflows/muster.yml", "forgejo": ".forgejo/workflows/muster.yml", "gitlab": ".gitlab-ci.yml",
}

func (w *world) forge(kind string) *running {
	if w.forges[kind] == nil {
		f := forgetest.New(kind)
		if w.forges == nil {
			w.forges = forges{}
		}
		w.forges[kind] = &running{f, httptest.NewServer(f)}
	}
	return w.forges[kind]
}

// cmdPlanJob runs the shell of the job that plans, as it stands in the workflow of a forge in the
// directory DIR, with the environment that the workflow gives it and the forge's own. Variables
// of the CI are those of the script, and secrets are in files that these name. It ends with the exit code CODE.
func cmdPlanJob(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 3, "planjob CODE FORGE DIR")
	kind, dir := args[1], ts.MkAbs(args[2])
	f := worldOf(ts).forge(kind)
	event := filepath.Join(ts.MkAbs("."), "event.json")
	ts.Check(os.WriteFile(event, []byte(forgetest.Event()), 0o600))
	env := f.Env(f.server.URL, event)
	base, err := exec.Command("git", "-C", dir, "merge-base", "origin/main", "HEAD").Output()
	ts.Check(err)
	env["CI_MERGE_REQUEST_DIFF_BASE_SHA"] = strings.TrimSpace(string(base))
	text, err := os.ReadFile(filepath.Join(dir, workflows[kind]))
	ts.Check(err)
	runs, given := planJob(string(text), func(name string) string {
		switch name {
		case "github.base_ref":
			return "main"
		case "github.token":
			return forgetest.Token
		}
		kind, setting, _ := strings.Cut(name, ".")
		value := ts.Getenv(setting)
		if kind == "secrets" && value != "" {
			b, err := os.ReadFile(value)
			ts.Check(err)
			value = string(b)
		}
		return value
	})
	if kind == "gitlab" { // its settings are in the environment of each job
		for _, name := range []string{"MUSTER_MASTER", "MUSTER_PLAN_CERT", "MUSTER_COMMENT_TOKEN"} {
			env[name] = ts.Getenv(name)
		}
	}
	for name, value := range given {
		env[name] = os.Expand(value, func(n string) string { return env[n] })
	}
	need(ts, len(runs) > 0, "a workflow with a job that plans")
	for _, run := range runs {
		cmd := exec.Command("sh", "-c", run)
		cmd.Dir = dir
		for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
			cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
		}
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		ts.Logf("[%s]\n%s%s", run, &out, &errs)
		code := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else {
			ts.Check(err)
		}
		if strconv.Itoa(code) != args[0] {
			ts.Fatalf("%s: %s: exit code %d, want %s", kind, run, code, args[0])
		}
	}
}

var expression = regexp.MustCompile(`\$\{\{ ([a-z_.A-Z0-9]+) \}\}`)

// planJob returns what the job that plans runs, and the environment that the workflow gives it.
func planJob(workflow string, setting func(string) string) (runs []string, env map[string]string) {
	env = map[string]string{}
	inside, block := false, ""
	for line := range strings.Lines(workflow) {
		trimmed := strings.TrimSpace(line)
		if trimmed == "plan:" {
			inside = true
			continue
		}
		item, isItem := strings.CutPrefix(trimmed, "- ")
		run, isRun := strings.CutPrefix(item, "run: ")
		switch name, value, pair := strings.Cut(trimmed, ": "); {
		case !inside:
		case trimmed == "env:" || trimmed == "variables:" || trimmed == "script:":
			block = trimmed
		case isItem && isRun:
			runs = append(runs, run)
		case isItem && block == "script:":
			runs = append(runs, item)
		case pair && (block == "env:" || block == "variables:"):
			value, _, _ = strings.Cut(value, " #")
			env[name] = expression.ReplaceAllStringFunc(value, func(s string) string { return setting(expression.FindStringSubmatch(s)[1]) })
		}
	}
	return runs, env
}

// cmdComments looks at the comments of a forge: there are so many, one was written so many times,
// and the newest of them matches.
func cmdComments(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && (len(args) == 3 || len(args) == 4), "comments FORGE COUNT WRITES [REGEXP]")
	f := worldOf(ts).forge(args[0])
	all, writes := f.Comments()
	if got := fmt.Sprint(len(all), " ", writes); got != args[1]+" "+args[2] {
		ts.Fatalf("%s: comments and writes: %s", args[0], got)
	}
	if m := f.Mistakes(); len(m) > 0 {
		ts.Fatalf("%s does not take: %v", args[0], m)
	}
	if len(args) == 4 && !regexp.MustCompile(args[3]).MatchString(all[len(all)-1].Body) {
		ts.Fatalf("%s: %s does not match\n%s", args[0], args[3], all[len(all)-1].Body)
	}
}

func (f forges) close() {
	for r := range maps.Values(f) {
		r.server.Close()
	}
}
