//go:build !amd64 && !arm64

package bundle

import (
	"fmt"
	"runtime"
)

// errMachine is of architectures that have no first process of ours.
var errMachine = fmt.Errorf("containers on %s are not supported yet", runtime.GOARCH)

func writeFirst(string) error { return errMachine }

func forkIdle(uintptr) (int, error) { return 0, errMachine }
