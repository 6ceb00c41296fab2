package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/musterhq/muster/schema"
)

// portOffset is where struct bpf_sock_addr (linux/bpf.h) has the port, in network
// order.
const portOffset = 24

// What a program of a cgroup returns.
const (
	refused   = 0 // the system call fails with EPERM
	permitted = 1
)

// allowMulti is BPF_F_ALLOW_MULTI: the programs of cgroups above, such as
// systemd's, are run as well.
const allowMulti = 1 << 1

// binds are the system calls by which a socket takes a port of its choice.
var binds = []ebpf.AttachType{ebpf.AttachCGroupInet4Bind, ebpf.AttachCGroupInet6Bind}

// connects are the system calls by which a socket chooses its other end.
var connects = []ebpf.AttachType{ebpf.AttachCGroupInet4Connect, ebpf.AttachCGroupInet6Connect}

// loadPort puts the port of a call into R2.
func loadPort() asm.Instructions {
	return asm.Instructions{asm.LoadMem(asm.R2, asm.R1, portOffset, asm.Word), asm.HostTo(asm.BE, asm.R2, asm.Half)}
}

// connectRule lets sockets connect to all ports but those. Which address is meant
// does not matter: a machine has many, and 0.0.0.0 is one more.
func connectRule(closed []int) asm.Instructions {
	rule := loadPort()
	for _, p := range closed {
		rule = append(rule, asm.JEq.Imm(asm.R2, int32(p), "refuse")) //nolint:gosec // a port
	}
	return append(rule,
		asm.Mov.Imm(asm.R0, permitted), asm.Return(),
		asm.Mov.Imm(asm.R0, refused).WithSymbol("refuse"), asm.Return())
}

// bindRule lets sockets bind to ports, and to whatever port the kernel chooses.
func bindRule(ports schema.Ports) asm.Instructions {
	rule := append(loadPort(), asm.JEq.Imm(asm.R2, 0, "permit"))
	for _, p := range ports {
		rule = append(rule, asm.JEq.Imm(asm.R2, int32(p.Port), "permit")) //nolint:gosec // a port
	}
	return append(rule,
		asm.Mov.Imm(asm.R0, refused), asm.Return(),
		asm.Mov.Imm(asm.R0, permitted).WithSymbol("permit"), asm.Return())
}

// attachRule has the kernel run a rule for what sockets that are made in the cgroup
// of dir do. It stays for as long as the cgroup does, whoever has attached it.
func attachRule(dir string, rule asm.Instructions, on ...ebpf.AttachType) error {
	programs, err := loadRule(rule, on...)
	if err != nil {
		return err
	}
	err = attach(dir, programs, on...)
	for _, p := range programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// loadRule has the kernel check a rule, for each of on.
func loadRule(rule asm.Instructions, on ...ebpf.AttachType) ([]*ebpf.Program, error) {
	var programs []*ebpf.Program
	for _, at := range on {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "muster", Type: ebpf.CGroupSockAddr, AttachType: at, Instructions: rule, License: "MIT"})
		if err != nil {
			for _, p := range programs {
				err = errors.Join(err, p.Close())
			}
			return nil, fmt.Errorf("rule for sockets: %w", err)
		}
		programs = append(programs, p)
	}
	return programs, nil
}

// attach is attachRule of what is loaded.
func attach(dir string, programs []*ebpf.Program, on ...ebpf.AttachType) error {
	group, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer group.Close()
	for i, at := range on {
		if err := link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(group.Fd()), Program: programs[i], Attach: at, Flags: allowMulti}); err != nil {
			return fmt.Errorf("rule for sockets: %w", err)
		}
	}
	return nil
}

// GuardPorts keeps the task of a, in the cgroup name, from ports that are not its
// own: those of other tasks, and of whatever else listens on the machine, also
// while that is being restarted. From closed ports one that requires isolation is
// kept altogether. It does nothing where the kernel has no rules for ports.
func (c *Cgroups) GuardPorts(name string, a *schema.Assignment) error {
	i, dir := a.Job.Task.Isolation, c.unifiedDir(name)
	if !c.Has(portRules) || a.OwnNetwork || i != nil && i.Network == schema.NoNetwork {
		return nil // all ports of a network of its own are its own
	}
	var err error
	if len(a.Ports) == 0 {
		err = attach(dir, c.noPorts, binds...)
	} else {
		err = attachRule(dir, bindRule(a.Ports), binds...)
	}
	if err == nil && i != nil && i.Require && len(c.closed) > 0 {
		err = attachRule(dir, connectRule(c.closed), connects...)
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	return nil
}

// unifiedDir returns the directory of the cgroup name in the v2 tree, "" without one.
func (c *Cgroups) unifiedDir(name string) string {
	if c.can.kind != kindV2 && c.can.kind != kindHybrid {
		return ""
	}
	dirs := c.groups.dirs(name)
	return dirs[len(dirs)-1]
}

// portRules is among what a machine's cgroups can do, beside the controllers.
const portRules = "ports"

// tryPortRules finds out by trying whether the kernel takes rules for ports.
func (c *Cgroups) tryPortRules() error {
	dir := c.unifiedDir("probe-ports")
	if dir == "" {
		return errors.New("no cgroups v2")
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	noPorts, err := loadRule(bindRule(nil), binds...)
	if err == nil {
		err = attach(dir, noPorts, binds...)
	}
	if err = errors.Join(err, attachRule(dir, connectRule([]int{1}), connects...), os.Remove(dir)); err == nil {
		c.noPorts = noPorts
		return nil
	}
	for _, p := range noPorts {
		err = errors.Join(err, p.Close())
	}
	return err
}
