package thread

import (
	"runtime"
	"syscall"
)

// Run calls f on a thread that ends afterwards, so that f may leave it in other
// namespaces, and returns f's error, or nil when f ends its goroutine. What f starts in other
// goroutines is not there.
//
// It is never the first thread of the process, which cannot end: the process would be
// in whatever namespaces f leaves it in (/proc/PID/net and /proc/PID/ns are those of the
// first thread), for as long as it lives.
func Run(f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer close(done) // also where f ends the goroutine
		runtime.LockOSThread()
		if syscall.Gettid() != syscall.Getpid() {
			done <- f() // never unlocked: the thread ends with the goroutine
			return
		}
		err := Run(f) // on another, while this one is held
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
