package history_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/schema"
)

// planIn is where the process that TestPlannerKilled kills has its child say who it is.
const planIn = "MUSTER_TEST_PLAN_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(planIn); dir != "" {
		_, err := shell(`echo $$ >`+dir+`/new && mv `+dir+`/new `+dir+`/pid && exec sleep 600`).Plan(context.Background(), &schema.Compiled{}, nothing)
		panic(err) // it is killed before
	}
	os.Exit(m.Run())
}

func shell(script string) history.Planner {
	return history.Planner{Exe: "/bin/sh", Args: []string{"-c", script}}
}

func nothing(io.Writer) error { return nil }

// TestPlanner: what plans gives way to all else on the machine, knows nothing of the master's
// environment, and is believed when it says that it has failed.
func TestPlanner(t *testing.T) {
	t.Parallel()
	o, err := shell(`cat >/dev/null; printf '{"cell":"%s %s %s"}' "$(cat /proc/self/oom_score_adj)" "$(nice)" "$HOME"`).Plan(t.Context(), &schema.Compiled{}, nothing)
	if err != nil || o.Cell != "1000 10 " && o.Cell != "1000 19 " { // of a test that is nice itself
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := shell(`cat >/dev/null; echo no such cell >&2; exit 1`).Plan(t.Context(), &schema.Compiled{}, nothing); err == nil || !strings.Contains(err.Error(), "no such cell") {
		t.Errorf("error %v", err)
	}
	slow := shell(`exec sleep 600`)
	slow.Timeout = 10 * time.Millisecond
	if _, err := slow.Plan(t.Context(), &schema.Compiled{}, nothing); err == nil || err.Error() != "it took longer than 10ms" {
		t.Errorf("error %v", err)
	}
}

// TestPlannerKilled: a plan ends with the master, however that ends.
func TestPlannerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	master := exec.CommandContext(t.Context(), exe)
	master.Env = append(os.Environ(), planIn+"="+dir)
	if err := master.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for text == nil {
		if text, err = os.ReadFile(filepath.Join(dir, "pid")); err != nil && (!errors.Is(err, os.ErrNotExist) || t.Context().Err() != nil) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = master.Wait() // killed
	for deadline := time.Now().Add(30 * time.Second); running(child); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(child, syscall.SIGKILL)
			t.Fatal("the plan goes on")
		}
	}
}

// running reports whether a process runs: one that has ended may wait for pid 1 to see that.
func running(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
