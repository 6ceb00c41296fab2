package keeper

import "testing"

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
