//go:build !amd64 && !arm64

package bundle

import (
	"fmt"
	"runtime"
)

// writeFirst is for architectures that have no first.
func writeFirst(string) error {
	return fmt.Errorf("containers on %s are not supported yet", runtime.GOARCH)
}
