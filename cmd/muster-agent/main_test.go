package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestBadFlags(t *testing.T) {
	t.Parallel()
	good := []string{"--cell", "local", "--master", "unix:/nowhere/link.sock", "--state-dir", "/nowhere"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--master is missing"},
		{good[:4], "--state-dir is missing"},
		{good[2:], "--cell is missing"},
		{append(good[:6:6], "--token-file", "x"), "--token-file is for a master over TLS"},
		{append(good[4:6:6], "--master", "localhost"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[4:6:6], "--master", ":7421"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[4:6:6], "--master", "localhost:0"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[4:6:6], "--master", "https://localhost:7421"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[2:], "--cell", "No"), `--cell: name "No": want lower-case`},
		{append(good[:6:6], "--name", "Node1.example"), "hint: such as node1-example"},
		{append(good[:6:6], "--master", "tcp://1.2.3.4:5"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[:6:6], "--master", "unix:"), "want unix:PATH or HOST:PORT[,HOST:PORT…]"},
		{append(good[:6:6], "--ports", "9"), "want FIRST-LAST"},
		{append(good[:6:6], "--ports", "9-8"), "want FIRST-LAST"},
		{append(good[:6:6], "--ports", "0-8"), "want FIRST-LAST"},
		{append(good[:6:6], "--ports", "1-65536"), "want FIRST-LAST"},
		{append(good[:6:6], "--cpu-milli", "-1"), `"-1" for "--cpu-milli" flag: want a number from 1`},
		{append(good[:6:6], "--reserve-ram-bytes", "-1"), "want a number from 0"},
		{append(good[:6:6], "--reserve-cpu-milli", "1", "--cpu-milli", "5"), "--reserve-cpu-milli with --cpu-milli"},
		{append(good[:6:6], "--log-level", "loud"), `--log-level "loud"`},
		{append(good[:6:6], "--metrics-listen", "0.0.0.0:9101"), "only loopback addresses may be bound"},
		{append(good[:6:6], "--metrics-listen", ":9101"), "only loopback addresses may be bound"},
		{append(good[:6:6], "--metrics-listen", "[::]:9101"), "hint: 127.0.0.1:9101"},
		{append(good[:6:6], "--metrics-listen", "example.com:80"), "only loopback addresses may be bound"},
		{append(good[:6:6], "--metrics-listen", "9101"), "want HOST:PORT"},
		{append(good[:6:6], "--metrics-listen", "127.0.0.1:http"), `port "http" is not a number`},
		{append(good[:6:6], "--peer-listen", "7423"), `--peer-listen "7423": want IP:PORT or :PORT`},
		{append(good[:6:6], "--peer-listen", "example.com:7423"), "hint: such as --peer-listen :7423"},
		{append(good[:6:6], "--peer-listen", ":0"), "want IP:PORT or :PORT"},
		{append(good[:6:6], "--dns-listen", "53"), `--dns-listen "53": want IP or IP:PORT`},
		{append(good[:6:6], "--dns-listen", "0.0.0.0"), "hint: such as 10.1.2.3"},
		{append(good[:6:6], "--dns-listen", "10.0.0.1,10.0.0.1:53"), "10.0.0.1:53 is there twice"},
		{append(good[:6:6], "--dns-listen", "10.0.0.1", "--dns-upstream", "dns.example"), `--dns-upstream "dns.example": want IP or IP:PORT`},
		{append(good[:6:6], "--dns-listen", "10.0.0.1", "--dns-upstream", "10.0.0.1"), "the agent itself listens there"},
		{append(good[:6:6], "--dns-listen", "10.0.0.1", "--dns-allow", "10.0.0.1/8"), `--dns-allow "10.0.0.1/8": want a range`},
		{append(good[:6:6], "--dns-upstream", "10.0.0.1"), "hint: give --dns-listen, too"},
		{append(good[:6:6], "--close-port", "70000"), `--close-port 70000: want a port from 1 to 65535`},
		{append(good[:6:6], "--hide", "etc"), `--hide "etc": want an absolute path`},
		{append(good[:6:6], "--hide", "/"), `--hide "/": want an absolute path below /`},
		{append(good[:6:6], "now"), `unexpected argument "now"`},
		{append(good[:6:6], "--nope"), "unknown flag: --nope"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(tt.args, &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), tt.want) || stdout.Len() != 0 {
			t.Errorf("%q: exit %d, stderr %q, stdout %q, want exit 2 and %q", tt.args, code, stderr.String(), stdout.String(), tt.want)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "127.0.0.1:0", "127.1.2.3:9101", "[::1]:9101", "localhost:9101"} {
		if err := checkLoopback(addr); err != nil {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

// TestSessionSockets: tasks that have the agent's user are kept from its session.
func TestSessionSockets(t *testing.T) {
	t.Parallel()
	if got := sessionSockets(0); len(got) != 0 {
		t.Errorf("%q of root, whose user no task has", got)
	}
	if got, want := sessionSockets(1000), []string{"/run/user/1000"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--help"}, &stdout, &stderr); code != 0 || stderr.Len() != 0 {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
	for _, want := range []string{"Examples:", "--cell local --master unix:", "--ports FIRST-LAST", "20000-29999", "--metrics-listen", "--cpu-milli", "SIGTERM", "SIGINT"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, stdout.String())
		}
	}
	stdout.Reset()
	if code := run([]string{"version"}, &stdout, &stderr); code != 0 || stdout.String() != "muster-agent dev\n" {
		t.Errorf("version: exit %d, %q", code, stdout.String())
	}
}

func TestMachine(t *testing.T) {
	t.Parallel()
	f := &flags{name: "m7", ports: schema.PortRange{First: 1, Last: 2}, capacity: schema.Resources{CPUMilli: 500}}
	info, err := f.machine(schema.MachineInfo{Boot: "b", Capacity: schema.Resources{CPUMilli: 2000, RAMBytes: 8 << 30, DiskBytes: 1 << 30}})
	want := schema.Resources{CPUMilli: 500, RAMBytes: 8<<30 - 8<<30/20, DiskBytes: 1<<30 - 1<<30/20}
	kept := schema.Resources{CPUMilli: 1500, RAMBytes: 8 << 30 / 20, DiskBytes: 1 << 30 / 20}
	if info.Reserved != kept {
		t.Errorf("kept %+v, want %+v", info.Reserved, kept)
	}
	if err != nil || info.Name != "m7" || info.Ports != f.ports || info.Capacity != want || info.AgentVersion != version || info.Boot != "b" {
		t.Errorf("%+v, %v", info, err)
	}
	f.capacity = schema.Resources{CPUMilli: 9000} // more than there is, for tests of a cell
	f.reserve.ram, f.reserve.disk = amount{true, 0}, amount{true, 5}
	info, err = f.machine(schema.MachineInfo{Capacity: schema.Resources{CPUMilli: 2000, RAMBytes: 7, DiskBytes: 8}})
	if want := (schema.Resources{CPUMilli: 9000, RAMBytes: 7, DiskBytes: 3}); err != nil || info.Capacity != want || info.Reserved != (schema.Resources{DiskBytes: 5}) {
		t.Errorf("%+v, kept %+v, %v", info.Capacity, info.Reserved, err)
	}
	f.reserve.disk.value = 8
	if _, err := f.machine(schema.MachineInfo{Capacity: schema.Resources{DiskBytes: 8}}); err == nil || !strings.Contains(err.Error(), "nothing is left for tasks") {
		t.Errorf("a reserve of all: %v", err)
	}
	f = &flags{name: ""}
	if info, err := f.machine(schema.MachineInfo{}); err != nil || schema.CheckName(info.Name) != nil {
		t.Errorf("the host's name: %q, %v", info.Name, err)
	}
}

func TestCleanName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"node1":                  "node1",
		"Node1.Example.COM":      "node1-example-com",
		"_x_":                    "x",
		"…":                      "",
		strings.Repeat("a.", 40): strings.Repeat("a-", 31) + "a",
	} {
		got := cleanName(in)
		if got != want {
			t.Errorf("cleanName(%q) = %q, want %q", in, got, want)
		}
		if err := schema.CheckName(got); got != "" && err != nil {
			t.Error(err)
		}
	}
}

// What is typed of a kind of device replaces all that was found of that kind.
func TestTypedDevices(t *testing.T) {
	t.Parallel()
	found := schema.MachineInfo{Devices: []schema.DeviceGroup{{Kind: "gpu", Model: "T4", Count: 2}, {Kind: "fpga", Count: 1}}}
	f := &flags{name: "m1", devices: devices{{Kind: "gpu", Model: "mine", Count: 1}}}
	info, err := f.machine(found)
	want := []schema.DeviceGroup{{Kind: "fpga", Count: 1}, {Kind: "gpu", Model: "mine", Count: 1}}
	if err != nil || !slices.EqualFunc(info.Devices, want, schema.DeviceGroup.Equal) || found.Devices[0].Model != "T4" {
		t.Errorf("devices %v, %v, want %v", info.Devices, err, want)
	}
}
