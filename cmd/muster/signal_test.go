package main

import "testing"

func TestSignalNumber(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"SIGKILL": 9, "SIGRTMIN": 34, "SIGRTMIN+3": 37, "SIGRTMAX": 64, "signal 32": 32, "nonsense": 0} {
		if got := signalNumber(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
