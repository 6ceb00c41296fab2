package keeper

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestEntryInRoom: all that a child looks at lies in the room, however large it is.
func TestEntryInRoom(t *testing.T) {
	t.Parallel()
	room := &forkRoom{}
	b := &beside{room: room, filter: make([]unix.SockFilter, 99), spec: Spec{
		Dir: "/work", OOMScoreAdj: 500, User: &User{70000, 70000}, Rlimits: &Rlimits{Files: 64},
	}}
	for _, size := range []int{0, 1, 15, 16, 17, 4095, 70_000} {
		o := &order{command: []string{"true", strings.Repeat("a", size), ""}, env: []string{"PATH=/bin:/usr/bin", "X=" + strings.Repeat("b", size)}}
		var open opened
		e, _, err := b.entry(o, &open)
		if err != nil {
			t.Fatal(err)
		}
		for what, at := range map[string]unsafe.Pointer{
			"entry": unsafe.Pointer(e), "score": unsafe.Pointer(&e.score[0]), "directory": unsafe.Pointer(e.way[0]), "limits": unsafe.Pointer(&e.limits[0]),
			"filter": unsafe.Pointer(e.filter), "program": unsafe.Pointer(e.filter.Filter), "path": unsafe.Pointer(e.paths[1]), "paths": unsafe.Pointer(&e.paths[0]),
			"arguments": unsafe.Pointer(e.argv), "environment": unsafe.Pointer(e.envp), "score's file": unsafe.Pointer(e.scoreFile),
		} {
			if from := uintptr(unsafe.Pointer(&room.memory[0])); uintptr(at) < from || uintptr(at) >= from+uintptr(room.used) {
				t.Errorf("with %d bytes: %s is not in the room", size, what)
			}
		}
		argv, envp := unsafe.Slice(e.argv, len(o.command)+1), unsafe.Slice(e.envp, len(o.env)+1)
		for i, want := range o.command {
			if got := unix.BytePtrToString(argv[i]); got != want {
				t.Errorf("argument %d has %d bytes, want %d", i, len(got), len(want))
			}
		}
		if got := unix.BytePtrToString(envp[1]); got != o.env[1] || argv[len(o.command)] != nil || envp[len(o.env)] != nil {
			t.Errorf("with %d bytes: the last variable has %d bytes; %v and %v end the lists", size, len(got), argv[len(o.command)], envp[len(o.env)])
		}
		if got := unix.BytePtrToString(e.paths[1]); got != "/usr/bin/true" || len(e.paths) != 2 {
			t.Errorf("path %q of %d", got, len(e.paths))
		}
	}
	var refused commandError
	if _, _, err := b.entry(&order{command: []string{"/bin/true", "a\x00b"}}, &opened{}); !errors.As(err, &refused) {
		t.Errorf("an argument with a NUL: %v, want a commandError", err)
	}
}
