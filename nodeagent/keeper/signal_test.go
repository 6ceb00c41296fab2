package keeper

import (
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestSignals: each signal that can end a task has a name, also those that the
// library knows none for.
func TestSignals(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"kill -9 $$": "SIGKILL", "kill -34 $$": "SIGRTMIN", "kill -37 $$": "SIGRTMIN+3", "kill -64 $$": "SIGRTMAX", "kill -32 $$": "signal 32",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			exit, err := start(t, t.TempDir(), testSpec(t, script)).Wait()
			if err != nil || exit.Signal != want || exit.Code != -1 {
				t.Errorf("%q ended with %+v, %v: want %s", script, exit, err, want)
			}
		})
	}
}

// A task ignores no signal, whatever whoever started the agent had it ignore.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	const reserved = 32 // for the C library, and no use to Go
	ignored := sigaction{handler: sigIgnored}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, reserved, uintptr(unsafe.Pointer(&ignored)), 0, signals/8, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	// Busybox's shell ignores SIGQUIT (4) for itself, and is its own grep.
	exit, err := start(t, t.TempDir(), testSpec(t, `grep -q "SigIgn:.000000000000000[04]" /proc/self/status`)).Wait()
	if err != nil || exit.Code != 0 {
		t.Errorf("ended with %+v, %v", exit, err)
	}
}
