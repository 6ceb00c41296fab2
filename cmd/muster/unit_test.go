package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit of the master is what systemd takes, where systemd is there to say so, and
// keeps the master from what it does not need.
func TestUnit(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze: the unit is not verified")
	}
	const shipped = "systemd/muster-master.service"
	b, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	// It wants the binary and the user to be there.
	here := strings.NewReplacer("/usr/local/bin/muster", "/bin/true", "User=muster", "User=daemon").Replace(string(b))
	unit := filepath.Join(t.TempDir(), "muster-master.service")
	if err := os.WriteFile(unit, []byte(here), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	const exposure = "--threshold=16" // in tenths
	if out, err := exec.Command(analyze, "security", "--offline=true", exposure, shipped).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security %s: %v\n%s", exposure, err, out)
	}
}
