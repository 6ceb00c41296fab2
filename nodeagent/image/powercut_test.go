package image

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var (
	powerVM   = flag.String("image.vm", "", "directory with vmlinuz and modules for TestPowerCut, as .ci/vm-kernel makes it; its machines are not started without")
	powerCuts = flag.Int("image.cuts", 4, "machines whose power TestPowerCut cuts")
	powerSeed = flag.Uint64("image.seed", 1, "seed of the moments and of what is lost")
)

// guestEnv is set in the virtual machine of TestPowerCut, and powerCutEnv in its process that has
// its mounts for itself.
const (
	guestEnv    = "MUSTER_TEST_GUEST"
	powerCutEnv = "MUSTER_TEST_POWERCUT"
)

// What the machine says.
const (
	guestStarted = "guest: the task started"
	guestPulls   = "guest: pulls"
)

// mostFlushes bounds how late the power is cut: an image is pulled with about 60, so that there is
// some removal, and another pull, too.
const mostFlushes = 160

// TestPowerCut cuts the power of a machine that pulls and collects, as with its plug: a virtual
// machine is killed, and its disk has forgotten what was not flushed. The next one finds a store that
// is whole, pulls what is lacking, and starts a task. What one machine has written is taken apart
// further, at each flush.
func TestPowerCut(t *testing.T) {
	switch {
	case os.Getenv(guestEnv) != "":
		powerGuest(t)
	case *powerVM == "":
		t.Skip("NOT TESTED: needs -image.vm: make vm-power has it")
	case os.Getenv(powerCutEnv) == "":
		alone(t, powerCutEnv, "-image.vm", *powerVM, "-image.cuts", fmt.Sprint(*powerCuts), "-image.seed", fmt.Sprint(*powerSeed))
	default:
		cutPower(t)
	}
}

// powerGuest is all that runs in the machine.
func powerGuest(t *testing.T) {
	p := newInterrupted(t, "/disk/images", busyboxLayer(t, "/bin/busybox"))
	found := p.check()
	img := p.finish()
	out, err := chrooted(mount(t, img), "/bin/busybox", "echo", guestStarted)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.RemoveAll(p.at); err != nil {
		t.Fatal(err)
	}
	unix.Sync()
	fmt.Printf("guest: %d layers were there\n%s%s\n", found, out, guestPulls)
	pull := pullAsChild(p.at + "|" + p.b.ref.String() + "|50")
	t.Errorf("pulled to the end, with status %d: the power was not cut", pull)
}

// chrooted runs a program below a root directory.
func chrooted(root string, args ...string) ([]byte, error) {
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	c.Dir = "/"
	return c.CombinedOutput()
}

// busyboxLayer is a layer with a program that can be started.
func busyboxLayer(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	program := reg("bin/busybox", string(b))
	program.Mode = 0o755
	return tarOf(t, dir("bin"), program)
}

func cutPower(t *testing.T) {
	top := t.TempDir()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("NOT TESTED: needs busybox: %v", err)
	}
	image := filepath.Join(top, "image")
	makeDisk(t, image)
	content, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(*powerSeed, 0))
	vm := &powered{t: t, socket: filepath.Join(top, "disk.sock"), initrd: initrd(t, top, busybox)}
	vm.disk = newPowerDisk(t, vm.socket, content)
	for i := range *powerCuts {
		flushes := 1 + chance.IntN(mostFlushes)
		if i == 0 {
			flushes = mostFlushes // of which each is looked at below
		}
		vm.run(flushes)
		if i == 0 {
			lookAtEachFlush(t, vm.disk, image, busybox, chance)
		}
		vm.disk.lose(chance)
	}
	vm.run(0)
}

// makeDisk makes an empty disk.
func makeDisk(t *testing.T, image string) {
	t.Helper()
	f, err := os.Create(image)
	if err := errors.Join(err, f.Truncate(48<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: needs mkfs.ext4: %v\n%s", err, out)
	}
}

// powered is a virtual machine.
type powered struct {
	t              *testing.T
	disk           *powerDisk
	socket, initrd string
}

// largestBoot bounds how long a machine may take until it pulls: its processor is emulated, on a
// machine that has much else to do.
const largestBoot = 4 * time.Minute

// run starts the machine on its disk, and cuts its power at a flush so many after it began to pull; at
// once when it is 0.
func (v *powered) run(flushes int) {
	v.t.Helper()
	began := time.Now()
	c := exec.CommandContext(v.t.Context(), "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max", "-smp", "2", "-m", "512",
		"-display", "none", "-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-drive", "file=nbd:unix:"+v.socket+",format=raw,if=virtio,cache=writeback",
		"-kernel", filepath.Join(*powerVM, "vmlinuz"), "-initrd", v.initrd, "-append", "console=ttyS0 quiet panic=-1 no_timer_check random.trust_cpu=on")
	c.Stderr = v.t.Output()
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		v.t.Fatal(err)
	}
	kill := time.AfterFunc(largestBoot, func() { _ = c.Process.Kill() })
	defer func() { kill.Stop(); _ = c.Process.Kill(); _, _ = io.Copy(io.Discard, out); _ = c.Wait() }()
	said, started, lines := []string{}, false, bufio.NewScanner(out)
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		said = append(said, line)
		switch {
		case strings.HasPrefix(line, guestStarted):
			started = true
		case line == guestPulls && started && flushes == 0:
			return
		case line == guestPulls && started:
			v.t.Logf("after %s: %s", time.Since(began).Round(time.Second), strings.Join(said[max(0, len(said)-3):], "; "))
			select {
			case <-v.disk.arm(flushes):
				v.t.Logf("the power was cut at flush %d", flushes)
				return
			case <-time.After(largestBoot):
				v.t.Fatalf("no %d flushes came", flushes)
			}
		}
	}
	v.t.Fatalf("it did not come as far as to pull:\n%s", strings.Join(said, "\n"))
}

// lookAtEachFlush looks at what is on the disk if the power is cut before a flush, with all lost that
// came since the one before, or some of it.
func lookAtEachFlush(t *testing.T, d *powerDisk, image, busybox string, chance *rand.Rand) {
	t.Helper()
	base, log := d.recorded()
	at := filepath.Join(filepath.Dir(image), "disk")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // it is not mounted where that has failed
	p := newInterrupted(t, filepath.Join(at, "images"), busyboxLayer(t, busybox))
	states, found, whole := 0, map[int]int{}, 0
	for i := range log {
		if log[i].data != nil && i < len(log)-1 {
			continue
		}
		if err := os.WriteFile(image, afterCut(base, log[:i], chance), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mount", "-o", "loop", image, at).CombinedOutput(); err != nil {
			t.Fatalf("mount: %v\n%s", err, out)
		}
		states++
		found[p.check()]++
		if len(p.open().Images()) > 0 {
			whole++
		}
		p.finish()
		if err := unix.Unmount(at, 0); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("at write %d of %d, seed %d", i, len(log), *powerSeed)
		}
	}
	t.Logf("%d moments, in %d of which there was the image; by how many layers there were: %v", states, whole, found)
	if states < mostFlushes || whole == 0 || len(found) < 3 {
		t.Error("too little was seen: nothing was tested")
	}
}

// initrd packs what the machine starts with.
func initrd(t *testing.T, top, busybox string) string {
	t.Helper()
	root, out := filepath.Join(top, "root"), filepath.Join(top, "root.cpio")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "proc", "sys", "dev", "tmp", "disk"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{busybox: "bin/busybox", self: "test"} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(root, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(
		os.CopyFS(filepath.Join(root, "modules"), os.DirFS(filepath.Join(*powerVM, "modules"))),
		os.WriteFile(filepath.Join(root, "init"), []byte(guestInit), 0o755),
		os.Symlink("busybox", filepath.Join(root, "bin/sh")),
	)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", "find . | cpio --quiet -o -H newc >"+out)
	c.Dir = root
	if b, err := c.CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: needs cpio: %v\n%s", err, b)
	}
	return out
}

// guestInit is the first process of the machine.
const guestInit = `#!/bin/sh
export PATH=/bin TMPDIR=/tmp ` + guestEnv + `=1
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
ip link set lo up
for m in overlay virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do insmod /modules/$m.ko; done
mount -t ext4 /dev/vda /disk && /test -test.run '^TestPowerCut$' -test.v
poweroff -f
`
