package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
	"github.com/spf13/cobra"
)

// flags is what was typed.
type flags struct {
	cell, master, name, stateDir string
	ports                        schema.PortRange
	capacity                     schema.Resources // 0: what is found, less
	reserve                      reserve
	labels                       labels
	labelsFile                   string
	devices                      devices
	devicesFile                  string
	deviceNodes                  deviceNodes
	usage                        usageFlags
	address                      string
	cgroupParent                 string
	metricsListen                string
	hide, writable               []string
	volumes                      volumes
	capabilities                 []string
	closedPorts                  []int
	images                       imageFlags
	dns                          dnsFlags
	cni                          cniFlags
	noExec                       bool
	onlyCheck                    bool
	logLevel                     string
	level                        slog.Level
	tokenFile                    string
	dial                         []string // of master: a socket's path, or each HOST:PORT
	remote                       bool     // dial is HOST:PORT
}

func (f *flags) register(cmd *cobra.Command) {
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&f.cell, "cell", "", "name of the cell (default what the join token or the certificate says)")
	set.StringVar(&f.master, "master", "", "where the master listens for agents: unix:PATH, or HOST:PORT[,HOST:PORT…] over TLS, of all masters of the cell; the machine name decides which one it connects to first")
	set.StringVar(&f.tokenFile, "token-file", "", "file with the join token from muster pki token, for a machine without a certificate")
	set.StringVar(&f.stateDir, "state-dir", "", "directory for the tasks and the agent's state")
	set.StringVar(&f.name, "name", "", "name of this machine (default what the join token or the certificate says, else the host's name)")
	set.Var((*portRange)(&f.ports), "ports", "range of ports for tasks")
	set.StringVar(&f.address, "address", "", "IP address at which other machines reach the tasks of this one (default the one from which it connects to the master)")
	set.Var((*positive)(&f.capacity.CPUMilli), "cpu-milli", "CPU for tasks, in thousandths of a core (default all but the reserve)")
	set.Var((*positive)(&f.capacity.RAMBytes), "ram-bytes", "memory for tasks, in bytes (default all but the reserve)")
	set.Var((*positive)(&f.capacity.DiskBytes), "disk-bytes", "disk space for tasks, in bytes (default the state directory's file system but the reserve)")
	set.Var(&f.reserve.cpu, "reserve-cpu-milli", "CPU reserved for the system and the agent, in thousandths of a core (default 1% of the cores, 50 at least)")
	set.Var(&f.reserve.ram, "reserve-ram-bytes", "memory reserved for the system and the agent (default 5%, from 128 MiB to 4 GiB)")
	set.Var(&f.reserve.disk, "reserve-disk-bytes", "disk space reserved for the system and the agent (default 5%, at most 10 GiB)")
	set.Var(&f.labels, "label", "label of this machine, for constraints, preferences and spread of jobs; may be repeated")
	set.StringVar(&f.labelsFile, "labels-file", "", "file with further labels, one per line")
	set.Var(&f.devices, "device", "devices of this machine that tasks may ask for, such as gpu=2, gpu:T4=2 or gpu:A100=4,memory=80Gi,numa=0,link=a; may be repeated")
	set.StringVar(&f.devicesFile, "devices-file", "", "file with further devices, one group per line")
	set.Var(&f.deviceNodes, "device-node", "device file for tasks with devices of a kind, such as kvm=/dev/kvm, or gpu=/dev/nvidia* with * for the index (default the GPUs that are found); may be repeated")
	f.usage.register(set)
	set.StringVar(&f.cgroupParent, "cgroup-parent", "", "parent cgroup of the tasks, such as /muster; created if needed (default the agent's own)")
	set.StringVar(&f.metricsListen, "metrics-listen", "", "loopback listen address for /metrics, such as 127.0.0.1:9101 (default none)")
	set.StringArrayVar(&f.writable, "writable", nil, "absolute path of a directory of the machine that tasks may write to, subject to file permissions; all others are read-only for them; may be repeated")
	set.Var(&f.volumes, "volume", "directory of this machine that jobs may ask for by a name, such as models=/srv/models, or models=/srv/models:ro for one that no task may write to; may be repeated")
	set.StringArrayVar(&f.capabilities, "capability", []string{"NET_BIND_SERVICE"}, "capability of Linux that tasks of this machine may have if their tenant may: NET_BIND_SERVICE, NET_RAW, NET_ADMIN, IPC_LOCK, SYS_NICE, DAC_READ_SEARCH (with which a task reads all files of the machine that are not hidden), or none; may be repeated")
	set.StringArrayVar(&f.hide, "hide", nil, "absolute path of a directory or file that is hidden from tasks, beside the state directory and the master's socket; may be repeated")
	set.IntSliceVar(&f.closedPorts, "close-port", nil, "port to which tasks with isolation.require cannot connect, at any address: that of the master's API; may be repeated. Those of --master always are")
	set.StringArrayVar(&f.images.mirrors, "registry-mirror", nil, "host to pull images of a registry from before the registry itself is asked, such as docker.io=mirror.example.com; may be repeated")
	set.StringArrayVar(&f.images.insecure, "insecure-registry", nil, "registry, as HOST[:PORT], that may be used without TLS; those on a loopback address always may; may be repeated")
	set.StringVar(&f.images.authFile, "registry-auth-file", "", "file with users and passwords for registries and mirrors, as docker login writes it; no other user may read it (default none)")
	set.StringVar(&f.images.listen, "peer-listen", "", "address, as IP:PORT or :PORT, at which other machines of the cell get the images and packages that this one has, over TLS (default none)")
	set.DurationVar(&f.images.age, "image-age", 7*24*time.Hour, "time after which an image is removed that no task has needed")
	f.dns.register(set)
	f.cni.register(set)
	set.BoolVar(&f.noExec, "no-exec", false, "disable muster exec on this machine")
	set.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	set.BoolVar(&f.onlyCheck, "check", false, "check the other flags, and exit")
}

// check errs with a usageError for what cannot be.
func (f *flags) check() error {
	for _, required := range []struct{ flag, value string }{{"master", f.master}, {"state-dir", f.stateDir}} {
		if required.value == "" {
			return usageError{fmt.Errorf("--%s is missing", required.flag), ""}
		}
	}
	if err := f.checkMaster(); err != nil {
		return err
	}
	if err := f.checkNames(); err != nil {
		return err
	}
	if f.address != "" {
		if err := schema.CheckAddress(f.address); err != nil {
			return usageError{fmt.Errorf("--address: %w", err), "such as 10.1.2.3"}
		}
	}
	if err := checkPaths("--writable", f.writable); err != nil {
		return err
	}
	if err := checkPaths("--hide", f.hide); err != nil {
		return err
	}
	if err := f.checkShares(); err != nil {
		return err
	}
	if err := f.checkCapabilities(); err != nil {
		return err
	}
	if err := f.checkMachine(); err != nil {
		return err
	}
	for _, p := range f.closedPorts {
		if p < 1 || p > 65535 {
			return usageError{fmt.Errorf("--close-port %d: want a port from 1 to 65535", p), "such as --close-port 7420"}
		}
	}
	if err := f.level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return usageError{fmt.Errorf("--log-level %q: want debug, info, warn or error", f.logLevel), ""}
	}
	if err := f.usage.check(); err != nil {
		return err
	}
	if err := f.images.check(); err != nil {
		return err
	}
	if err := f.dns.check(); err != nil {
		return err
	}
	if err := f.cni.check(); err != nil {
		return err
	}
	return checkLoopback(f.metricsListen)
}

// checkMachine errs for labels, devices and directories that this machine cannot have: before
// anything is started, since muster dev asks that with --check.
func (f *flags) checkMachine() error {
	dir, err := filepath.Abs(f.stateDir)
	if err != nil {
		return fmt.Errorf("--state-dir %s: %w", f.stateDir, err)
	}
	facts := machine.Find("/", dir)
	if err := f.given(&schema.MachineInfo{Attributes: facts.Attributes, Devices: facts.Devices}); err != nil {
		return err
	}
	hide := append(f.hidden(), dir)
	if err := runtime.CheckWritable(f.writable, hide); err != nil {
		return usageError{fmt.Errorf("--writable: %w", err), "name a directory that is there, and that has nothing which is hidden from tasks"}
	}
	if err := runtime.CheckVolumes(f.volumes, hide); err != nil {
		return usageError{fmt.Errorf("--volume: %w", err), "name a directory that is there, and that has nothing which is hidden from tasks"}
	}
	return nil
}

// hidden returns what tasks shall not see, beside the state directory.
func (f *flags) hidden() []string {
	return slices.Concat(hidden(f.master), sessionSockets(os.Geteuid()), f.hide)
}

// checkPaths errs for what cannot be hidden from tasks, or be theirs to write to.
func checkPaths(flag string, paths []string) error {
	for _, p := range paths {
		if !path.IsAbs(p) || path.Clean(p) == "/" {
			return usageError{fmt.Errorf("%s %q: want an absolute path below /", flag, p), ""}
		}
	}
	return nil
}

// checkNames errs for names that cannot be. A master elsewhere is shown a
// certificate, which has both.
func (f *flags) checkNames() error {
	if f.cell == "" && !f.remote {
		return usageError{fmt.Errorf("--cell is missing"), ""}
	}
	if f.cell != "" {
		if err := schema.CheckName(f.cell); err != nil {
			return usageError{fmt.Errorf("--cell: %w", err), ""}
		}
	}
	if f.name != "" {
		if err := schema.CheckName(f.name); err != nil {
			return usageError{fmt.Errorf("--name: %w", err), hintName(f.name)}
		}
	}
	return nil
}

// checkMaster finds out what --master means.
func (f *flags) checkMaster() error {
	if path, local := strings.CutPrefix(f.master, "unix:"); local && path != "" {
		f.dial = []string{path}
		if f.tokenFile != "" {
			return usageError{fmt.Errorf("--token-file is for a master over TLS, and --master %s is a socket", f.master), "leave it out, or give --master HOST:PORT"}
		}
		return nil
	}
	f.dial, f.remote = strings.Split(f.master, ","), true
	for i, address := range f.dial {
		host, port, err := net.SplitHostPort(address)
		n, portErr := strconv.ParseUint(port, 10, 16)
		if err != nil || host == "" || host == "unix" || portErr != nil || n == 0 || strings.ContainsAny(host, "/ ") {
			return usageError{fmt.Errorf("--master %q: want unix:PATH or HOST:PORT[,HOST:PORT…]", f.master), "such as unix:/var/lib/muster/link/agent.sock, or master.example.com:7421"}
		}
		if slices.Contains(f.dial[:i], address) {
			return usageError{fmt.Errorf("--master %q: %s is there twice", f.master, address), "give each master once"}
		}
	}
	return nil
}

// closed returns the ports that are closed to tasks that require isolation.
func (f *flags) closed() []int {
	ports := slices.Clone(f.closedPorts)
	if _, port, err := net.SplitHostPort(f.images.listen); err == nil {
		n, _ := strconv.Atoi(port) // checked before
		ports = append(ports, n)
	}
	if f.remote {
		for _, address := range f.dial {
			_, port, _ := net.SplitHostPort(address) // checked before
			if n, err := strconv.Atoi(port); err == nil {
				ports = append(ports, n)
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// checkCapabilities errs for what no machine can offer.
func (f *flags) checkCapabilities() error {
	if slices.Equal(f.capabilities, []string{"none"}) {
		f.capabilities = nil
	}
	for _, name := range f.capabilities {
		if err := schema.CheckOffered(name); err != nil {
			message, hint := schema.HintOf(err)
			return usageError{fmt.Errorf("--capability: %s", message), hint}
		}
	}
	return nil
}

// checkShares errs when what is kept for the system cannot be, or has no place.
func (f *flags) checkShares() error {
	for _, r := range f.reserve.each() {
		if r.amount.typed && f.capacity.Of(r.dimension) != 0 {
			return usageError{fmt.Errorf("--%s with --%s: one says what is kept for the system, the other what is not", r.flag, r.instead), "give one of them"}
		}
	}
	if p := f.cgroupParent; p != "" && (!path.IsAbs(p) || path.Clean(p) != p || p == "/") {
		return usageError{fmt.Errorf("--cgroup-parent %q: want an absolute path of a cgroup below the root, written in the shortest way", p), "such as /muster"}
	}
	return nil
}

func hintName(name string) string {
	if clean := cleanName(name); clean != "" {
		return "such as " + clean
	}
	return ""
}

// checkLoopback errs when addr is not host:port on loopback. "" is none.
func checkLoopback(addr string) error {
	if addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("--metrics-listen %q: want HOST:PORT", addr), ""}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return usageError{fmt.Errorf("--metrics-listen %q: port %q is not a number from 0 to 65535", addr, port), ""}
	}
	ip, err := netip.ParseAddr(host)
	if host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return usageError{fmt.Errorf("--metrics-listen %q: only loopback addresses may be bound", addr), "127.0.0.1:" + port}
	}
	return nil
}

// machine puts what was typed in place of what was found.
func (f *flags) machine(found schema.MachineInfo) (schema.MachineInfo, error) {
	found.Ports, found.AgentVersion, found.Address = f.ports, version, f.address
	if err := f.given(&found); err != nil {
		return found, err
	}
	var err error
	if found.Name, err = f.machineName(); err != nil {
		return found, err
	}
	found.Capacity, found.Reserved, err = f.reserve.split(found.Capacity, f.capacity)
	return found, err
}

// machineName returns the name of this machine: that of the host if no other was given.
func (f *flags) machineName() (string, error) {
	if f.name != "" {
		return f.name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	name := cleanName(host)
	if name == "" {
		return "", usageError{fmt.Errorf("the host name %q has no part that is a valid machine name", host), "give it one with --name"}
	}
	return name, nil
}

// portRange is a flag's value, FIRST-LAST.
type portRange schema.PortRange

func (r *portRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Type returns what stands for the value in the help.
func (*portRange) Type() string { return "FIRST-LAST" }

// Set parses FIRST-LAST.
func (r *portRange) Set(s string) error {
	first, last, ok := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if !ok || errA != nil || errB != nil || a == 0 || a > b {
		return fmt.Errorf("want FIRST-LAST, two ports from 1 to 65535")
	}
	r.First, r.Last = int(a), int(b)
	return nil
}

// cleanName makes a machine's name out of a host's: lower case, with a hyphen
// for what a name cannot have, and not too long. It is "" when nothing is left.
func cleanName(host string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	return strings.Trim(clean[:min(len(clean), schema.MaxNameLen)], "-")
}
