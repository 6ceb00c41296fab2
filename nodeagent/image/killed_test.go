package image

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// interrupted is an image of which pulls do not come to an end.
type interrupted struct {
	t    *testing.T
	g    *registry
	b    built
	want map[string]map[string]string // what its layers have, by their names in a store
	at   string                       // of the store
}

func newInterrupted(t *testing.T, at string, more ...[]byte) *interrupted {
	t.Helper()
	g := newRegistry(t)
	var many []file
	for i := range 200 {
		many = append(many, reg(fmt.Sprintf("d/%d", i), strings.Repeat(fmt.Sprint(i), 1000)))
	}
	layers := append([][]byte{tarOf(t, append(many, dir("d"))...), tarOf(t, reg("d/x", "implicit"), reg(".wh.y", "")), tarOf(t, many[:50]...)}, more...)
	b := g.image(t, gzipped, layers...)
	p := &interrupted{t: t, g: g, b: b, want: map[string]map[string]string{}, at: at}
	img, err := newStore(t, g, nil).Ensure(t.Context(), b.ref)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range img.Layers {
		p.want[filepath.Base(filepath.Dir(l))] = look(t, l)
	}
	return p
}

// open opens the store as the next process does.
func (p *interrupted) open() *Store {
	p.t.Helper()
	return openStore(p.t, p.at, func(c *Config) { c.Insecure = []string{p.g.host()} })
}

// pull has a process pull the image, and calls stop so long after its first request. It returns when the process
// has ended.
func (p *interrupted) pull(after time.Duration, stop func(*os.Process)) {
	p.t.Helper()
	began, once := make(chan struct{}), sync.Once{}
	p.g.answer(func(http.ResponseWriter, *http.Request) bool { once.Do(func() { close(began) }); return false })
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+p.at+"|"+p.b.ref.String()+"|50")
	if err := child.Start(); err != nil {
		p.t.Fatal(err)
	}
	<-began
	done := make(chan struct{})
	stopping := time.AfterFunc(after, func() { stop(child.Process); close(done) })
	_ = child.Wait()
	if !stopping.Stop() {
		<-done
	}
}

// check looks at what the next process finds, and returns how many layers that are.
func (p *interrupted) check() (layers int) {
	p.t.Helper()
	s := p.open()
	if left := names(p.t, s.path(tempDir)); len(left) != 0 {
		p.t.Errorf("not removed: %v", left)
	}
	for name := range s.layers {
		layers++
		if d := cmp.Diff(p.want[name], look(p.t, s.path(layersDir, name, rootName))); d != "" {
			p.t.Fatalf("layer %s is not whole (-want +got):\n%s", name, d)
		}
	}
	for d, k := range s.images {
		if d != p.b.sum() || len(k.record.Layers) != len(p.want) {
			p.t.Errorf("image %+v", k.record)
		}
	}
	return layers
}

// finish pulls the image, of which layers that are there are not asked for.
func (p *interrupted) finish() Image {
	p.t.Helper()
	s := p.open()
	lacking, before := len(p.want)-len(s.layers), p.asked()
	if _, ok := s.Find(p.b.ref); ok {
		lacking = 0
	}
	img, err := s.Ensure(p.t.Context(), p.b.ref)
	if err != nil {
		p.t.Fatal(err)
	}
	if n := p.asked() - before; n != lacking {
		p.t.Errorf("%d layers were asked for, want the %d that were not there", n, lacking)
	}
	for _, l := range img.Layers {
		if d := cmp.Diff(p.want[filepath.Base(filepath.Dir(l))], look(p.t, l)); d != "" {
			p.t.Fatalf("layer %s is not whole (-want +got):\n%s", l, d)
		}
	}
	return img
}

// asked counts how often layers were asked for.
func (p *interrupted) asked() (n int) {
	for _, l := range p.b.layers {
		n += p.g.asked(l.String())
	}
	return n
}

// some errs if there never was a layer.
func (p *interrupted) some(layers int) {
	p.t.Helper()
	if layers == 0 {
		p.t.Error("no process had come as far as one layer: nothing was tested")
	}
}

// TestKilled kills processes that pull and collect, at any moment: what the next one
// finds in the store is whole.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := newInterrupted(t, filepath.Join(t.TempDir(), "images"))
	found := 0
	for i := 0; i < 12 || found == 0 && i < 60; i++ {
		// Some moment of its work, a different one each time.
		p.pull(time.Duration(i*i*3)*time.Millisecond, func(child *os.Process) { _ = child.Kill() })
		found += p.check()
	}
	p.some(found)
	p.finish()
}

// ext4Shutdown is EXT4_IOC_SHUTDOWN of the kernel, and noFlush says that what has not been written
// yet, of the journal too, never is.
const (
	ext4Shutdown = 0x8004587d
	noFlush      = 2
)

// aloneEnv is set in the process in which TestPowerLost has its mounts for itself.
const aloneEnv = "MUSTER_TEST_ALONE"

// TestPowerLost has the disk of a store stop while a process pulls and collects, so that nothing
// more comes to be on it, as when the machine loses its power: what is found after the next
// start is whole.
func TestPowerLost(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root to mount a disk")
	}
	if os.Getenv(aloneEnv) != "" {
		losePower(t)
		return
	}
	alone(t, aloneEnv)
}

// alone runs a test again in a process that has its mounts for itself, with a variable set that says
// so: a disk that others have mounted, too, is not started again.
func alone(t *testing.T, env string, flags ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], append([]string{"-test.run=^" + t.Name() + "$", "-test.v"}, flags...)...)
	c.Env, c.SysProcAttr = append(os.Environ(), env+"=1"), &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := c.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("NOT TESTED: %s", out)
	default:
		t.Logf("%s", out)
	}
}

func losePower(t *testing.T) {
	t.Helper()
	top := t.TempDir()
	image, disk := filepath.Join(top, "image"), filepath.Join(top, "disk")
	f, err := os.Create(image)
	if err := errors.Join(err, f.Truncate(96<<20), f.Close(), os.Mkdir(disk, 0o755)); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) error {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w\n%s", args, err, out)
		}
		return nil
	}
	mount := func() error { return run("mount", "-o", "loop", image, disk) }
	if err := errors.Join(run("mkfs.ext4", "-q", "-m", "0", image), mount()); err != nil {
		t.Skipf("NOT TESTED: needs a loop device with a file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) }) // it is not mounted where that has failed
	p, found := newInterrupted(t, filepath.Join(disk, "images")), 0
	for i := 0; i < 8 || found == 0 && i < 40; i++ {
		p.pull(time.Duration(i*i*8)*time.Millisecond, func(child *os.Process) {
			if err := stopDisk(disk); err != nil {
				t.Error(err)
			}
			_ = child.Kill()
		})
		if err := errors.Join(unix.Unmount(disk, 0), mount()); err != nil {
			t.Fatal(err)
		}
		found += p.check()
	}
	t.Logf("%d layers were found", found)
	p.some(found)
	p.finish()
}

// stopDisk has nothing more written to a disk.
func stopDisk(disk string) error {
	d, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.IoctlSetPointerInt(int(d.Fd()), ext4Shutdown, noFlush)
}
