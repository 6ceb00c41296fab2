package compile

import "golang.org/x/sys/unix"

// legacy are the forbidden calls that only this architecture has.
var legacy = []uint32{unix.SYS_FSTATAT}
