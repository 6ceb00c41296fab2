package host

import "testing"

// TestParseNetlink: what waits in all sockets together is looked at only if it is much.
func TestParseNetlink(t *testing.T) {
	t.Parallel()
	const head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	const rest = "0000000000000000 0   77         00000000 0        0        0     2        0        11\n"
	if of := parseNetlink([]byte(head + rest + "0000000000000000 0   2180       00000001 4194303        0        0     2        0        23180\n")); of != nil {
		t.Errorf("%v, want nothing", of)
	}
	of := parseNetlink([]byte(head + rest + "0000000000000000 4   2180       00000001 4194304        0        0     2        0        23180\nshort\n"))
	if len(of) != 1 || of[23180] != 4194304 {
		t.Errorf("%v, want 4 MiB of socket 23180", of)
	}
}
