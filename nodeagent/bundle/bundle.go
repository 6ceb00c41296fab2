package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrRuntime is in Start's error when the OCI runtime was started and did not make the
// container.
var ErrRuntime = errors.New("the container cannot be made")

// Container is a container of an image.
type Container struct {
	// Runtime is the path of an OCI runtime with the command line of runc, and Options are
	// what it is given before its command. They say that it is to leave cgroups alone.
	Runtime string   `json:"runtime"`
	Options []string `json:"options,omitempty"`
	// Config is its config.json, in which the root directory is Root, and the user
	// namespace Path of Users.
	Config json.RawMessage `json:"config"`
	// Layers are the directories of the image as overlayfs has them, the lowest first.
	Layers []string `json:"layers,omitempty"`
	// Writable is a directory of the machine for what is changed in the root directory,
	// with upper and work in it; "": nothing can be changed.
	Writable string `json:"writable,omitempty"`
	// Base are directories, each after the one it is in, and Empty are files that the root
	// directory has whatever the image has there: what is mounted needs them.
	Base  []Directory `json:"base,omitempty"`
	Empty []string    `json:"empty,omitempty"`
	// Packages are directories of the machine that are mounted as Package names them, read-only
	// and with their files given to the container's users.
	Packages []string `json:"packages,omitempty"`
	// Devices are device files that are in the bundle as Device names them, for the user Inside of
	// the container.
	Devices []DeviceFile `json:"devices,omitempty"`
	// Users and Groups map those of the container to the machine's.
	Users  Map `json:"users"`
	Groups Map `json:"groups"`
	// Kernel says that the runtime gives the container a kernel of its own, in user space, and
	// stays for as long as it runs: see Prepare, which is for these alone. Binds are
	// files and directories of the machine that are in the bundle as Bind names them, since
	// such a runtime is nobody on the machine, and may not pass through what they are in. ID is
	// the container's name for it, by which its socket is found: nobody guesses it, and none
	// on the machine has the same.
	Kernel bool     `json:"kernel,omitempty"`
	Binds  []string `json:"binds,omitempty"`
	ID     string   `json:"id,omitempty"`
	// OwnsNetwork says that there is a network namespace that is the user namespace's, in which its user 0
	// has all rights. It has only lo.
	OwnsNetwork bool `json:"ownsNetwork,omitempty"`
}

// DeviceFile is one by the numbers of its device.
type DeviceFile struct {
	Kind   uint32 `json:"kind"`   // unix.S_IFCHR or unix.S_IFBLK
	Number uint64 `json:"number"` // as unix.Mkdev makes it
}

// Directory is one of a root directory. Path begins with "/".
type Directory struct {
	Path string      `json:"path"`
	Mode os.FileMode `json:"mode"`          // its permissions, and os.ModeSticky
	UID  int         `json:"uid,omitempty"` // of the container
	GID  int         `json:"gid,omitempty"`
}

// The names in a bundle.
const (
	// Root is the root directory, Users a file that holds the user namespace, Network one that holds
	// the network namespace that is its, and First the program of the first process. State is a directory
	// of the runtime's own.
	Root    = "rootfs"
	Users   = "users"
	Network = "network"
	First   = "first"
	State   = "state"

	bundleDir   = "bundle" // in the incarnation's directory
	configFile  = "config.json"
	pidFile     = "pid"
	logFile     = "log"
	outputFile  = "output"
	writableDir = "writable"
	baseLayer   = "base"
	emptyLayer  = "empty"
	upperDir    = "upper"
	workDir     = "work"
	containerID = "task"
)

// ID is the name of the container for its runtime.
const ID = "task"

// Path returns where name of the bundle is for an incarnation's directory.
func Path(dir, name string) string { return filepath.Join(dir, bundleDir, name) }

// Bind returns the name in a bundle of the one of Binds with that index.
func Bind(index int) string { return "bind" + strconv.Itoa(index) }

// Package returns the name in a bundle of the package with that index.
func Package(index int) string { return "package" + strconv.Itoa(index) }

// Device returns the name in a bundle of the device file with that index.
func Device(index int) string { return "device" + strconv.Itoa(index) }

// bundleRoom bounds what the bundle takes of memory.
const bundleRoom = "mode=0711,size=4m"

// cgroups is where a machine has its cgroups, and hybridUnified where one with cgroups v1 may
// have the v2 tree. crun runs nothing where that has a controller, even if it is to leave
// cgroups alone, as here.
const (
	cgroups       = "/sys/fs/cgroup"
	hybridUnified = cgroups + "/unified"
)

// firstFD is where the first process has its end of a socket.
const firstFD = 3

// Start makes the container, and returns the pid of its first process, a child of who reaps
// the caller's orphans. alive is its end of a pair of sockets: it writes a byte when it is there,
// after Start perhaps, and lives until the other end is closed. program is a descriptor of what is executed as Runtime; 0: the
// file of that name. meanwhile is called while the runtime runs: what it costs takes no time.
// dir is a directory of the caller's; other users must pass through it.
//
// The caller reaps all its children, in its own time.
//
// The caller's goroutine must be locked to its thread, which is in a mount namespace of
// its own meanwhile; that ends with the container's.
func (c *Container) Start(dir string, alive uintptr, program int, meanwhile func() error) (pid int, err error) {
	err = apart(dir, func(bundle string) (err error) {
		pid, err = c.run(bundle, alive, program, meanwhile)
		return err
	})
	return pid, err
}

// apart calls do with the bundle's directory, in a mount namespace of its own.
func apart(dir string, do func(bundle string) error) error {
	here, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer here.Close()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err = do(filepath.Join(dir, bundleDir)); err != nil {
		err = fmt.Errorf("container: %w", err)
	}
	back := unix.Setns(int(here.Fd()), unix.CLONE_NEWNS)
	runtime.KeepAlive(here)
	return errors.Join(err, back, os.Chdir("/"))
}

// run makes the bundle and has the runtime run it. All mounts are of this mount namespace.
func (c *Container) run(bundle string, alive uintptr, program int, meanwhile func() error) (int, error) {
	if err := c.make(bundle); err != nil {
		return 0, err
	}
	if err := writeFirst(First); err != nil {
		return 0, fmt.Errorf("first process: %w", err)
	}
	if err := os.WriteFile(configFile, c.Config, 0o600); err != nil {
		return 0, err
	}
	pid, err := c.execute(bundle, alive, program)
	if err != nil {
		return 0, err
	}
	busy := meanwhile()
	if status := reap(pid); status != 0 {
		return 0, fmt.Errorf("%w: %s: %s", ErrRuntime, filepath.Base(c.Runtime), complaint(status))
	}
	text, err := os.ReadFile(pidFile)
	if err := errors.Join(busy, err); err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// make makes the bundle without its config, and the working directory of it.
func (c *Container) make(bundle string) error {
	// What the machine unmounts goes here too, or its devices would stay busy.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	if !c.Kernel { // whose runtime is nobody, and is put into cgroups from here
		if err := keepFromCgroups(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(bundle, 0o711); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", bundle, "tmpfs", 0, bundleRoom); err != nil {
		return fmt.Errorf("mount %s: %w", bundle, err)
	}
	if err := os.Chdir(bundle); err != nil {
		return err
	}
	return errors.Join(c.makeDevices(), c.mountRoot())
}

// makeDevices makes the device files: those of the machine belong to nobody of the container.
func (c *Container) makeDevices() error {
	for i, d := range c.Devices {
		name := Device(i)
		err := unix.Mknod(name, d.Kind|0o600, int(d.Number))
		if err := errors.Join(err, os.Chown(name, c.Users.Outside, c.Groups.Outside)); err != nil {
			return fmt.Errorf("device file: %w", err)
		}
	}
	return nil
}

// keepFromCgroups keeps the runtime from cgroups.
func keepFromCgroups() error {
	// It is covered, since the kernel takes a millisecond to unmount.
	if err := unix.Mount("tmpfs", hybridUnified, "tmpfs", unix.MS_RDONLY, "size=4k"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("hide %s from the runtime: %w", hybridUnified, err)
	}
	// runc leaves cgroups alone where it cannot write to them, and nowhere else.
	still := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, cgroups, unix.AT_RECURSIVE, &still); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("keep the runtime from %s: %w", cgroups, err)
	}
	return nil
}

// execute starts the runtime, which ends when it has made the container.
func (c *Container) execute(bundle string, alive uintptr, program int) (int, error) {
	// A file of the bundle: crun gives what it has there to user 0 of the container, and that could then
	// change the mode of the machine's /dev/null.
	null, err := os.OpenFile(outputFile, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	args := append(append([]string{c.Runtime}, c.Options...),
		"--root", filepath.Join(bundle, State), "--log", filepath.Join(bundle, logFile),
		"run", "--detach", "--preserve-fds=1", "--pid-file", filepath.Join(bundle, pidFile),
		"--bundle", bundle, containerID)
	exe := c.Runtime
	if program > 0 {
		exe = "/proc/self/fd/" + strconv.Itoa(program)
	}
	pid, err := syscall.ForkExec(exe, args, &syscall.ProcAttr{
		Dir: bundle, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), firstFD: alive},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", c.Runtime, err)
	}
	return pid, nil
}

// complaint is what the runtime has written to its log, or else how it ended.
func complaint(status syscall.WaitStatus) string {
	text, _ := os.ReadFile(logFile) // without it there is the status
	switch {
	case len(text) > 0:
		return strings.TrimSpace(string(text))
	case status.Signaled():
		return "killed by " + unix.SignalName(status.Signal())
	}
	return "exit status " + strconv.Itoa(status.ExitStatus())
}

// reap takes the end of a child.
func reap(pid int) (status syscall.WaitStatus) {
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if err != syscall.EINTR && (err != nil || status.Exited() || status.Signaled()) {
			return status
		}
	}
}
