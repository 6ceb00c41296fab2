package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// need ends the script unless a command of its own was written as it must be.
func need(ts *testscript.TestScript, ok bool, usage string) {
	if !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// command returns a process in the script's directory and environment: of variables that
// the script itself has set, it has those that json -set sets and those that args name,
// such as in the text of a shell.
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	var path string
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		path = filepath.Join(dir, args[0])
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 && !info.IsDir() {
			break
		}
	}
	cmd := exec.Command(path, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	names := append(slices.Clone(worldOf(ts).vars), "MUSTER_CERT")
	for _, arg := range args {
		os.Expand(arg, func(name string) string {
			names = append(names, name)
			return ""
		})
	}
	for _, name := range names {
		if value := ts.Getenv(name); value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	return cmd
}

var address = regexp.MustCompile(`^muster: cell \S+ at (unix:/\S+|https://127\.0\.0\.1:[1-9][0-9]*)$`)

// cmdStart starts a daemon. Without -quiet it waits for its first line on
// stdout, which must say where the cell's API is, and sets MUSTER_MASTER to
// that.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	quiet := len(args) > 0 && args[0] == "-quiet"
	if quiet {
		args = args[1:]
	}
	need(ts, !neg && len(args) >= 2, "start [-quiet] NAME PROGRAM ARG…")
	w := worldOf(ts)
	d, err := startDaemon(command(ts, args[1:]), filepath.Join(w.work, args[0]+".log"))
	ts.Check(err)
	w.daemons[args[0]] = d
	if quiet {
		return
	}
	select {
	case line := <-d.first:
		m := address.FindStringSubmatch(line)
		if m == nil {
			ts.Fatalf("the first line of %s is %q, want an address; it logged:\n%s", args[0], line, ts.ReadFile(d.log))
		}
		ts.Setenv("MUSTER_MASTER", m[1])
	case <-time.After(patience):
		ts.Fatalf("%s said nothing within %s; it logged:\n%s", args[0], patience, ts.ReadFile(d.log))
	}
}

func daemonOf(ts *testscript.TestScript, name string) *daemon {
	d := worldOf(ts).daemons[name]
	if d == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	return d
}

// cmdSignal sends a signal to a daemon.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	need(ts, !neg && len(args) == 2 && signals[args[0]] != 0, "signal INT|TERM|KILL NAME")
	ts.Check(daemonOf(ts, args[1]).cmd.Process.Signal(signals[args[0]]))
}

// cmdAwait waits for a daemon's end: with an exit code, or "killed".
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 2, "await CODE|killed NAME")
	want := -1
	if args[0] != "killed" {
		var err error
		want, err = strconv.Atoi(args[0])
		ts.Check(err)
	}
	d := daemonOf(ts, args[1])
	code, err := d.wait()
	if err != nil || code != want {
		ts.Fatalf("%s ended with exit code %d (%v), want %d; it logged:\n%s", args[1], code, err, want, ts.ReadFile(d.log))
	}
	ts.Logf("%s logged:\n%s", args[1], ts.ReadFile(d.log))
}

// exitCode runs a program to its end.
func exitCode(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	if err == nil {
		return 0
	}
	return exit.ExitCode()
}

// cmdExits runs a program that must end with the exit code.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) >= 2, "exits CODE PROGRAM ARG…")
	if code := exitCode(ts, args[1:]); strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s: exit code %d, want %s", args[1], code, args[0])
	}
}

// cmdFails is cmdExits for a mistake of the user: nothing on stdout, and on
// stderr one line that says what is wrong and one that says what to do.
func cmdFails(ts *testscript.TestScript, neg bool, args []string) {
	cmdExits(ts, neg, args)
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("it failed, yet on stdout is %q", out)
	}
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stderr"), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], args[1]+": ") || !strings.HasPrefix(lines[1], "hint: ") || len(lines[1]) < len("hint: ")+8 {
		ts.Fatalf("want one line %q and one line \"hint: …\"", args[1]+": …")
	}
}

// cmdWaitFor runs a program again and again until its stdout matches. That it
// fails is no more than not yet.
func cmdWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) >= 2, "waitfor REGEXP PROGRAM ARG…")
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(patience); ; {
		cmd := command(ts, args[1:])
		out, err := cmd.Output()
		if re.Match(out) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no match for %s within %s; last (%v):\n%s", args[0], patience, err, out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// cmdJSON looks into the JSON on the last command's stdout. PATH has elements
// joined by dots: a field, an index, or [FIELD=VALUE] for the one of a list
// that has it.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	set := ""
	if len(args) == 3 && args[0] == "-set" {
		set, args = args[1], []string{args[2], ""}
	}
	need(ts, len(args) == 2 && !(neg && set != ""), "[!] json PATH REGEXP, or json -set VAR PATH")
	var doc any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc); err != nil {
		ts.Fatalf("stdout is no JSON: %v", err)
	}
	found, err := dig(doc, args[0])
	if err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	text, ok := found.(string)
	if !ok {
		b, err := json.Marshal(found)
		ts.Check(err)
		text = string(b)
	}
	if set != "" {
		ts.Setenv(set, text)
		w := worldOf(ts)
		w.vars = append(w.vars, set)
		return
	}
	if match, err := regexp.MatchString(args[1], text); err != nil || match == neg {
		ts.Fatalf("%s is %s (%v)", args[0], text, err)
	}
}

var pathElement = regexp.MustCompile(`\[[^\]]*\]|[^.\[\]]+`)

func dig(doc any, path string) (any, error) {
	for _, e := range pathElement.FindAllString(path, -1) {
		switch v := doc.(type) {
		case map[string]any:
			next, ok := v[e]
			if !ok {
				return nil, fmt.Errorf("there is no %q", e)
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(e)
			if field, value, ok := strings.Cut(strings.Trim(e, "[]"), "="); ok {
				i, err = slices.IndexFunc(v, func(o any) bool {
					m, ok := o.(map[string]any)
					return ok && fmt.Sprint(m[field]) == value
				}), nil
			}
			if err != nil || i < 0 || i >= len(v) {
				return nil, fmt.Errorf("a list of %d has no %s", len(v), e)
			}
			doc = v[i]
		default:
			return nil, fmt.Errorf("%v has no %q", v, e)
		}
	}
	return doc, nil
}

// cmdTasks writes the running tasks of the cell to a file, each as NAME PID
// START RESTARTS, after it has seen that each is a live process; but for those of batch
// jobs, which may end at any time.
func cmdTasks(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "tasks FILE")
	ts.Check(ts.Exec("muster", "status", "-o", "json"))
	var s status.Status
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &s))
	batch := map[string]bool{}
	for i := range s.Jobs {
		batch[s.Jobs[i].Name] = s.Jobs[i].Kind == schema.Batch
	}
	var b strings.Builder
	for _, t := range s.Tasks {
		if batch[model.JobOf(t.Name)] {
			continue
		}
		if t.State != "running" || t.PID == 0 { // or an alloc, which has no process
			continue
		}
		p, err := identify(t.PID)
		if err != nil {
			ts.Fatalf("task %s: %v", t.Name, err)
		}
		fmt.Fprintf(&b, "%s %d %s %d\n", t.Name, p.pid, p.start, t.Restarts)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}

// eachTask calls f with the name of each task in a file of cmdTasks, and
// whether its process is alive.
func eachTask(ts *testscript.TestScript, file string, f func(name string, alive bool)) {
	for line := range strings.Lines(ts.ReadFile(file)) {
		field := strings.Fields(line)
		pid, err := strconv.Atoi(field[1])
		ts.Check(err)
		p, err := identify(pid)
		f(field[0], err == nil && p.start == field[2])
	}
}

// cmdRunning checks that all processes of a file of tasks are alive.
func cmdRunning(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "running FILE")
	n := 0
	eachTask(ts, args[0], func(name string, alive bool) {
		n++
		if !alive {
			ts.Fatalf("task %s has ended", name)
		}
	})
	if n == 0 {
		ts.Fatalf("%s has no task", args[0])
	}
}

// cmdGone checks that no process of a file of tasks is alive.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "gone FILE")
	eachTask(ts, args[0], func(name string, alive bool) {
		if alive {
			ts.Fatalf("task %s still runs", name)
		}
	})
}

// cmdOccupy listens on a port of loopback.
func cmdOccupy(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1, "occupy PORT")
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", args[0]))
	ts.Check(err)
	worldOf(ts).taken[args[0]] = l
}

// cmdRelease undoes cmdOccupy.
func cmdRelease(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, !neg && len(args) == 1 && worldOf(ts).taken[args[0]] != nil, "release PORT")
	ts.Check(worldOf(ts).taken[args[0]].Close())
}

// cmdNothingLeft checks that nothing is left of the script's cell; with -state
// not even its default state directory. What has been asked to end may take a
// moment.
func cmdNothingLeft(ts *testscript.TestScript, neg bool, args []string) {
	state := len(args) == 1 && args[0] == "-state"
	need(ts, !neg && (len(args) == 0 || state), "nothingleft [-state]")
	w := worldOf(ts)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left, err := w.left(state)
		ts.Check(err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("left behind:\n%s", strings.Join(left, "\n"))
		}
	}
}
