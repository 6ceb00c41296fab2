package keeper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilterBeforeCapabilitiesGo: the filter is there before the capabilities are given up,
// without which the kernel may have no room for it. So this one, which refuses to give them
// up, keeps the task from being started.
func TestFilterBeforeCapabilitiesGo(t *testing.T) {
	t.Parallel()
	var filter bytes.Buffer
	for _, i := range []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CAPSET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOTSUP)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	} {
		if err := binary.Write(&filter, binary.NativeEndian, i); err != nil {
			t.Fatal(err)
		}
	}
	spec, dir := testSpec(t, "exit 0"), t.TempDir()
	spec.Filter = filter.Bytes()
	if err := tryStart(t, dir, spec); err == nil || !bytes.Contains([]byte(err.Error()), []byte(unix.ENOTSUP.Error())) {
		t.Errorf("started with %v, want it refused to drop the capabilities", err)
	}
}

// TestFewFiles: a limit on descriptors below those that the keeper hands on is no obstacle.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	spec, dir := testSpec(t, `test "$(ulimit -n)" = 8`), t.TempDir()
	spec.Scoped, spec.Rlimits = CanScope(), &Rlimits{Files: 8}
	exit, err := start(t, dir, spec).Wait()
	if err != nil || exit.Code != 0 {
		t.Errorf("ended with %+v, %v", exit, err)
	}
}

// tryStart starts a task that may be refused, and waits for its end if it is not.
func tryStart(t *testing.T, dir string, spec *Spec) error {
	t.Helper()
	h, err := launchNow(t.Context(), "/proc/self/exe", dir, spec)
	if err != nil {
		return err
	}
	_, err = h.Wait()
	return errors.Join(err, h.Close())
}
