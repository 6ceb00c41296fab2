package kernel_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/services"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/nodeagent/network/services/servicestest"
)

const (
	manyServices = 10_000
	perService   = 10
)

// BenchmarkCold programs 10,000 services with 100,000 endpoints in an empty table, and then reads
// them as an agent that starts again.
func BenchmarkCold(b *testing.B) {
	list := servicestest.Many(manyServices, perService)
	var cold, again, memory float64
	for b.Loop() {
		s := newSpace(b)
		s.do(b, func() error {
			before, used := processor(), kernelMemory()
			p := kernel.New("one")
			p.Set(list...)
			c, err := p.Program()
			if err != nil {
				return err
			}
			if len(c.AddSlots) != manyServices*perService {
				return fmt.Errorf("%d slots", len(c.AddSlots))
			}
			cold += (processor() - before).Seconds()
			memory += float64(kernelMemory()-used) / (1 << 20)
			before = processor()
			p = kernel.New("one")
			p.Set(list...)
			if c, err = p.Program(); err != nil {
				return err
			}
			if !c.Empty() {
				return fmt.Errorf("started again, it changed %d elements", c.Size())
			}
			again += (processor() - before).Seconds()
			return nil
		})
	}
	b.ReportMetric(cold/float64(b.N), "cold-cpu-s")
	b.ReportMetric(again/float64(b.N), "again-cpu-s")
	b.ReportMetric(memory/float64(b.N), "kernel-MiB")
}

// BenchmarkOneEndpoint changes one of 100,000 endpoints.
func BenchmarkOneEndpoint(b *testing.B) {
	list := servicestest.Many(manyServices, perService)
	newSpace(b).do(b, func() error {
		p := kernel.New("one")
		p.Set(list...)
		if _, err := p.Program(); err != nil {
			return err
		}
		var took []time.Duration
		n := 0
		for b.Loop() {
			changed := servicestest.Many(1, perService)[0]
			changed.Ports[0].Backends[n%perService].Weight = n % 2 * 100
			n++
			begin := time.Now()
			p.Set(withKey(changed, list[0]))
			if _, err := p.Program(); err != nil {
				return err
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		return nil
	})
}

func withKey(s, like *services.Service) *services.Service {
	s.Key, s.Addresses = like.Key, like.Addresses
	return s
}

// BenchmarkReset looks for the flows of a task that has ended, among 50,000.
func BenchmarkReset(b *testing.B) {
	const flows = 50_000
	l := newLab(b, 1)
	p := kernel.New("one")
	s := web(0)
	l.program(p, s)
	l.machine.do(b, func() error {
		to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.96.0.1:8080"))
		for range flows {
			c, err := net.DialUDP("udp", nil, to)
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("?"))
			if err := errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	})
	for name, backends := range map[string][]netip.Addr{"all": nil, "ended": {netip.MustParseAddr("10.1.0.99")}} {
		b.Run(name, func(b *testing.B) {
			seen := 0
			before := processor()
			for b.Loop() {
				l.machine.do(b, func() error {
					_, err := p.Reset(backends, func(kernel.Flow) bool {
						seen++
						return false
					})
					return err
				})
			}
			b.ReportMetric((processor()-before).Seconds()*1000/float64(b.N), "cpu-ms")
			b.ReportMetric(float64(seen)/float64(b.N), "flows")
		})
	}
}

// BenchmarkVirtual compares connections to a backend with those to a virtual address, of few and
// of 10,000 services, all through the machine, in turns. The numbers are ratios: virtual to direct.
func BenchmarkVirtual(b *testing.B) {
	l := newLab(b, 1)
	l.sink(l.backends[0], 81)
	l.echoes(l.backends[0], 82)
	p := kernel.New("one")
	l.program(p, &services.Service{Key: "sink", Addresses: []netip.Addr{netip.MustParseAddr("10.95.0.1")}, Ports: []services.Port{
		{Protocol: services.TCP, Port: 81, Backends: []services.Backend{{At: netip.MustParseAddrPort("10.1.0.2:81"), Weight: 100}}},
		{Protocol: services.TCP, Port: 82, Backends: []services.Backend{{At: netip.MustParseAddrPort("10.1.0.2:82"), Weight: 100}}},
	}})
	const direct, virtual = "10.1.0.2:81", "10.95.0.1:81"
	for _, n := range []int{0, manyServices} {
		l.program(p, servicestest.Many(n, perService)...)
		b.Run(fmt.Sprint("throughput/services=", n+1), func(b *testing.B) {
			b.SetBytes(2 * piece)
			compare(b, direct, virtual, l.send)
		})
		b.Run(fmt.Sprint("request/services=", n+1), func(b *testing.B) { compare(b, direct, virtual, l.requests) })
		b.Run(fmt.Sprint("connect/services=", n+1), func(b *testing.B) { compare(b, direct, virtual, l.connects) })
	}
}

// compare runs both in turns, and reports ratios of medians and of 99th percentiles of the times.
func compare(b *testing.B, direct, virtual string, run func(to string) []time.Duration) {
	var d, v []time.Duration
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			d = append(d, run(direct)...)
			v = append(v, run(virtual)...)
		} else {
			v = append(v, run(virtual)...)
			d = append(d, run(direct)...)
		}
	}
	slices.Sort(d)
	slices.Sort(v)
	at := func(percent int) float64 {
		return float64(v[(len(v)-1)*percent/100]) / float64(d[(len(d)-1)*percent/100])
	}
	b.ReportMetric(at(50), "p50-ratio")
	b.ReportMetric(at(99), "p99-ratio")
	b.ReportMetric(float64(d[(len(d)-1)*99/100].Microseconds()), "direct-p99-µs")
}

func (l *lab) sink(s space, port int) {
	l.listen(s, port, func(c net.Conn) {
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write([]byte{1}) // all has come
	})
}

func (l *lab) echoes(s space, port int) {
	l.listen(s, port, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

const piece = 64 << 20

func (l *lab) send(to string) []time.Duration {
	buf := make([]byte, 256<<10)
	c, err := l.dial(l.client, "tcp", to)
	if err != nil {
		l.t.Fatal(err)
	}
	begin := time.Now()
	for range piece / len(buf) {
		if _, err := c.Write(buf); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := errors.Join(c.(*net.TCPConn).CloseWrite(), end(c)); err != nil {
		l.t.Fatal(err)
	}
	return []time.Duration{time.Since(begin)}
}

// requests sends a byte and gets it back, 200 times over one connection.
func (l *lab) requests(to string) []time.Duration {
	c, err := l.dial(l.client, "tcp", strings.Replace(to, ":81", ":82", 1))
	if err != nil {
		l.t.Fatal(err)
	}
	out := make([]time.Duration, 200)
	for i := range out {
		begin := time.Now()
		if err := echo(c); err != nil {
			l.t.Fatal(err)
		}
		out[i] = time.Since(begin)
	}
	return out
}

// connects makes a connection, sends a byte and waits for the answer, 50 times.
func (l *lab) connects(to string) []time.Duration {
	out := make([]time.Duration, 50)
	l.client.do(l.t, func() error {
		for i := range out {
			begin := time.Now()
			c, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			tcp := c.(*net.TCPConn)
			_, err = c.Write([]byte{1})
			if err := errors.Join(err, tcp.CloseWrite(), end(c), tcp.SetLinger(0), c.Close()); err != nil {
				return err
			}
			out[i] = time.Since(begin)
		}
		return nil
	})
	return out
}

func end(c net.Conn) error {
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func processor() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// kernelMemory is what the kernel uses for itself, in bytes, on the whole machine.
func kernelMemory() int64 {
	b, _ := os.ReadFile("/proc/meminfo")
	var total int64
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[0] == "Slab:" || f[0] == "VmallocUsed:" {
			var n int64
			_, _ = fmt.Sscan(f[1], &n)
			total += n << 10
		}
	}
	return total
}
