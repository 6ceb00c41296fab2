package runtime_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/schema"
)

// cdiHook is run by the runtime, which says in JSON where the bundle is.
const cdiHook = `#!/bin/sh
bundle=$(tr ',' '\n' | sed -n 's/.*"bundle" *: *"\([^"]*\)".*/\1/p')
echo "$1" >"$bundle/rootfs/hooked"
`

// further returns two devices of this machine that tasks have not, beside /dev/kmsg.
func further(t *testing.T) (second, third string) {
	t.Helper()
	var found []string
	for _, name := range []string{"/dev/tty0", "/dev/fuse", "/dev/tty1", "/dev/hwrng", "/dev/loop-control", "/dev/rtc0", "/dev/mem"} {
		if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			found = append(found, name)
		}
	}
	if len(found) < 2 {
		t.Skipf("NOT TESTED: needs two devices beside /dev/kmsg: %v", found)
	}
	return found[0], found[1]
}

// withCDI gives a machine two devices, of a file and of one more that says what a container needs
// for them.
func withCDI(t *testing.T, edits string) func(*config) {
	t.Helper()
	dir := sharedDir(t)
	second, third := further(t)
	text := strings.NewReplacer("DIR", dir, "SECOND", second, "THIRD", third).Replace(`
cdiVersion: "0.7.0"
kind: example.com/thing
devices:
- name: all
  containerEdits: {deviceNodes: [{path: /dev/kmsg}, {path: SECOND}], env: [WHICH=all]}
- name: first
  containerEdits: {deviceNodes: [{path: /dev/kmsg}], env: [WHICH=first]}
- name: second
  containerEdits: {deviceNodes: [{path: SECOND}], env: [WHICH=second]}
containerEdits:
` + edits)
	err := errors.Join(os.WriteFile(filepath.Join(dir, "hook"), []byte(cdiHook), 0o755), //nolint:gosec // a program
		os.WriteFile(filepath.Join(dir, "thing.yaml"), []byte(text), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *config) {
		c.host.Devices = map[string]host.DeviceFiles{"thing": {Each: [][]string{{"/dev/kmsg"}, {second}}}}
		c.host.CDIDirs = []string{dir, filepath.Join(dir, "none")}
	}
}

// TestCDI: a container has what CDI files say of the devices that its task was given, and nothing
// that they say of others.
func TestCDI(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, withCDI(t, `
  env: [DRIVER=there, COLOUR=red]
  deviceNodes: [{path: THIRD}]
  mounts:
  - {hostPath: DIR/there, containerPath: /lib/driver.so, options: [ro, nosuid, nodev, bind, noexec]}
  - {hostPath: DIR, containerPath: /opt/driver}
  hooks:
  - {hookName: createContainer, path: DIR/hook, args: [hook, it was]}
`))
	m.needGroups(t, "devices")
	second, third := further(t)
	script := `echo $WHICH $DRIVER $COLOUR; cat /lib/driver.so /opt/driver/there /hooked; for f in /dev/kmsg ` + second + " " + third + `; do [ ! -e $f ] || echo $f; done; echo x >>/lib/driver.so; (: >/dev/kmsg) && echo opened; [ $(stat -c %a:%u /dev/kmsg) = 600:$(id -u) ] && echo mine`
	for i, c := range []struct {
		uses []int
		want string
	}{
		{nil, "blue\n"},
		{[]int{0}, "first there mine\nshared\nshared\nit was\n/dev/kmsg\n" + third + "\nopened\nmine\n"},
		{[]int{1}, "second there mine\nshared\nshared\nit was\n" + second + "\n" + third + "\n"},
		{[]int{0, 1}, "second there mine\nshared\nshared\nit was\n/dev/kmsg\n" + second + "\n" + third + "\nopened\nmine\n"},
	} {
		a := contained(shell(i, script))
		a.Job.Task.Container.User = []string{"0", "ada"}[i%2]
		for _, index := range c.uses {
			a.Devices = append(a.Devices, schema.DeviceUse{Kind: "thing", Index: index, Milli: 1000})
		}
		if len(c.uses) > 0 {
			a.Job.Task.Env = map[string]string{"COLOUR": "mine"}
		}
		p, dir := m.start(a)
		wait(t, p)
		if got := said(t, dir); got != c.want {
			t.Errorf("given %v: %q, want %q\n%s", c.uses, got, c.want, saidErr(t, dir))
		}
	}
}

// TestCDIRefused: what cannot be done of a CDI file is said, and nothing starts without it.
func TestCDIRefused(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for i, c := range []struct{ edits, want string }{
		{`  mounts: [{hostPath: DIR/missing, containerPath: /x}]`, "CDI: example.com/thing=first: stat"},
		{`  mounts: [{hostPath: tmpfs, containerPath: /x, type: tmpfs}]`, "example.com/thing=first has a mount of the type tmpfs, which is not supported"},
		{`  hooks: [{hookName: poststop, path: DIR/hook}]`, "has a hook poststop, which is not supported"},
		{`  additionalGids: [7]`, "has additionalGids, which is not supported"},
		{`  deviceNodes: [{path: SECOND}]`, "gives each of its devices "},
		{`  deviceNodes: [{path: /dev/x, hostPath: THIRD}]`, " at /dev/x, which is not supported"},
		{`  mounts: 7`, "thing.yaml"},
	} {
		m := newContainerMachine(t, withCDI(t, c.edits))
		a := contained(shell(i, "true"))
		a.Devices = []schema.DeviceUse{{Kind: "thing", Index: 0, Milli: 1000}}
		_, err := m.Start(t.Context(), place(t, m.dir, a, 1), a)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.edits, err, c.want)
		}
	}
}
