package runtime

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// machineFiles are those of the machine that its network's names are found by.
var machineFiles = []string{"/etc/resolv.conf", "/etc/hosts"}

// ownNetwork is what a task with a network of its own has in place of the machine's.
type ownNetwork struct {
	namespace string // of which this is the file
	files     string // the directory with those of its machineFiles
}

// newOwnNetwork writes the files of a task with a network of its own into dir; nil of another.
func newOwnNetwork(dir string, a *schema.Assignment) (*ownNetwork, error) {
	if a.Network == nil {
		return nil, nil
	}
	n := &ownNetwork{a.Network.Namespace, dir}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	for _, name := range machineFiles {
		text := resolvConf(a.Network.Nameservers)
		if filepath.Base(name) == "hosts" {
			text = hosts(a.Network.Addresses, host)
		}
		path := n.file(name)
		if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
			return nil, err
		}
		if err := os.Chmod(path, 0o444); err != nil { // whatever the umask
			return nil, err
		}
	}
	return n, nil
}

// resolvConf has names be asked for as they are, and whole.
func resolvConf(servers []netip.Addr) string {
	var b strings.Builder
	for _, s := range servers {
		fmt.Fprintf(&b, "nameserver %s\n", s)
	}
	b.WriteString("options ndots:0\n")
	return b.String()
}

// hosts has the name that the task finds as its machine's be its own address.
func hosts(addresses []netip.Addr, host string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	for _, a := range addresses {
		fmt.Fprintf(&b, "%s %s\n", a, host)
	}
	return b.String()
}

// file returns what the task is to find at the path of one of machineFiles; n may be nil.
func (n *ownNetwork) file(name string) string {
	if n == nil {
		return name
	}
	return filepath.Join(n.files, filepath.Base(name))
}

// over puts the files in place of those in a root directory of the machine, as far as there are
// any; n may be nil.
func (n *ownNetwork) over(root string) []keeper.Mount {
	if n == nil {
		return nil
	}
	var mounts []keeper.Mount
	for _, name := range machineFiles {
		target := name
		if root == "/" {
			if real, err := filepath.EvalSymlinks(name); err == nil { // to where another program keeps it
				target = real
			}
		}
		if info, err := os.Lstat(filepath.Join(root, target)); err == nil && info.Mode().IsRegular() {
			mounts = append(mounts, keeper.Mount{Kind: keeper.Bind, Source: n.file(name), Target: target, ReadOnly: true})
		}
	}
	return mounts
}
