package host

import "testing"

// TestParseSockets: what all sockets hold together is looked at only if it is much.
func TestParseSockets(t *testing.T) {
	t.Parallel()
	const head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	const rest = "0000000000000000 0   77         00000000 0        0        0     2        0        11\n"
	if of := parseSockets([]byte(head + rest + "0000000000000000 0   2180       00000001 4194303        0        0     2        0        23180\n")); of != nil {
		t.Errorf("%v, want nothing", of)
	}
	of := parseSockets([]byte(head + rest + "0000000000000000 4   2180       00000001 4194304        0        0     2        0        23180\nshort\n"))
	if len(of) != 1 || of[23180] != 4194304 {
		t.Errorf("%v, want 4 MiB of socket 23180", of)
	}
	const udp = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n" +
		"  113: 0100007F:C2F0 0100007F:0009 01 00400000:00000300 00:00000000 00000000 70001        0 9741 2 0000000000000000 0\n" +
		"  114: 0100007F:C2F1 00000000:0000 07 00000000:00400000 00:00000000 00000000 70001        0 9742 2 0000000000000000 0\n"
	if of := parseSockets([]byte(head+rest), []byte(udp)); len(of) != 1 || of[9741] != 4<<20 {
		t.Errorf("%v, want 4 MiB of socket 9741, which is to send them", of)
	}
}
