//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// variable says where to end, as PLACE:COUNT.
const variable = "MUSTER_FAILPOINT"

// end is where this process is to end.
type end struct {
	place string
	count int // its passage, from 1 on
}

// wanted reads the environment once. It panics at what it cannot read: a test that waits
// for such an end would wait for ever.
var wanted = sync.OnceValue(func() end {
	text := os.Getenv(variable)
	if text == "" {
		return end{}
	}
	place, count, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("%s=%s: want PLACE:COUNT", variable, text))
	}
	return end{place, n}
})

var (
	mu     sync.Mutex // guards passed
	passed int        // how often the place has been passed
)

// pass ends the process if this is where it is to end. All others that pass that place
// wait meanwhile.
func pass(place string) {
	w := wanted()
	if place != w.place {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if passed++; passed == w.count {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // one's own process can be killed
		select {}
	}
}
