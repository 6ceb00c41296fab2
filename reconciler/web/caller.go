package web

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"strings"

	"github.com/musterhq/muster/schema/identity"
)

// caller says who makes a request, for the history: over TLS who the certificate
// says, else the user of this machine whose socket it is.
func (s *Server) caller(r *http.Request) string {
	if r.TLS != nil {
		if p, err := identity.PeerOf(r.TLS, s.cfg.Name); err == nil && p != nil {
			return p.String()
		}
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if ok {
		if name := ownerOf(r.RemoteAddr, local.String()); name != "" {
			return name
		}
	}
	return "somebody on the master's machine"
}

// ownerOf returns the name of the user who owns the other end of a connection on
// this machine, "" if that is not known: only Linux tells.
func ownerOf(remote, local string) string {
	theirs, err1 := netip.ParseAddrPort(remote)
	ours, err2 := netip.ParseAddrPort(local)
	if err1 != nil || err2 != nil {
		return ""
	}
	for file, wide := range map[string]bool{"/proc/net/tcp": false, "/proc/net/tcp6": true} {
		if uid := uidIn(file, procAddr(theirs, wide)+" "+procAddr(ours, wide)); uid != "" {
			if u, err := user.LookupId(uid); err == nil {
				return u.Username
			}
			return "uid " + uid
		}
	}
	return ""
}

// uidIn returns the owner of the socket between two ends, as /proc/net/tcp
// writes them; see proc_net_tcp in the kernel's documentation.
func uidIn(file, ends string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid …
		if f := strings.Fields(lines.Text()); len(f) > 7 && f[1]+" "+f[2] == ends {
			return f[7]
		}
	}
	return ""
}

// procAddr writes an address as /proc/net/tcp does, or with wide tcp6: words of
// 32 bits in the machine's order.
func procAddr(a netip.AddrPort, wide bool) string {
	ip := a.Addr().Unmap()
	b := ip.AsSlice()
	if wide {
		w := a.Addr().As16()
		b = w[:]
	}
	for i := 0; i+4 <= len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("%s:%04X", strings.ToUpper(hex.EncodeToString(b)), a.Port())
}
