package dns

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

const (
	// positiveTTL and negativeTTL are how long others may keep an answer, in seconds. What there
	// is of a name changes with each update of a job, and a name that is asked for too
	// early must not stay away.
	positiveTTL = 5
	negativeTTL = 2
	// mostInPacket and mostInStream are how many addresses or ports an answer has, over UDP and over
	// TCP; of more ready tasks it has some by chance. That is as good for one who connects to an address, and no
	// client has to come again over TCP for it; who asks for ports may want to know all, so
	// that such an answer says that it is truncated.
	mostInPacket = 16
	mostInStream = 512
	// longest is how long a name can be in DNS, with the dot at its end (RFC 1035, 2.3.4, has 255 octets in
	// packets). One of long parts in a long domain is longer: an answer with it would be none to any client.
	longest = 254
)

// Labels of the zone that no user, job or service is found at.
const (
	servicesLabel = "svc" // SERVICE.USER.svc
	serverLabel   = "ns"  // the name of this server; users have no address, so it hides none
)

// Zone is the names of a cell: cell.domain and all below it.
type Zone struct {
	domain string
	apex   string // lower case, with a dot at its end
	// self is where this server is reached by others.
	self []netip.Addr
}

// NewZone returns the zone of a cell below a domain, such as muster.internal; "" is
// schema.DefaultDomain. self are the addresses of the server that answers.
func NewZone(cell, domain string, self []netip.Addr) *Zone {
	return &Zone{domain, strings.ToLower(dns.Fqdn(cell + "." + cmp.Or(domain, schema.DefaultDomain))), self}
}

// Question is what is asked, of the zone.
type Question struct {
	Name string // as it was typed, with a dot at its end
	Type uint16
	// Seed decides which tasks of many are in the answer, and in which order.
	Seed uint64
	// Stream says that the answer may be long.
	Stream bool
}

// Answer is what there is to a question.
type Answer struct {
	Code   int // dns.RcodeSuccess or dns.RcodeNameError
	Answer []dns.RR
	Ns     []dns.RR
	Extra  []dns.RR
	// Truncated says that there is more over TCP.
	Truncated bool
}

// Has reports whether a name is in the zone, which alone knows what it is then.
func (z *Zone) Has(name string) bool {
	if strings.IndexByte(name, '\\') >= 0 { // an escaped dot is none
		return dns.IsSubDomain(z.apex, name)
	}
	from := len(name) - len(z.apex)
	return from >= 0 && strings.EqualFold(name[from:], z.apex) && (from == 0 || name[from-1] == '.')
}

// Answer answers a question of a name that the zone has. It is a function of its arguments.
func (z *Zone) Answer(s *naming.Snapshot, q Question) Answer {
	a := answering{zone: z, snapshot: s, question: q, apex: q.Name[max(0, len(q.Name)-len(z.apex)):]}
	at, ok := a.find()
	if !ok {
		a.Code = dns.RcodeNameError
	} else {
		at(&a)
	}
	if len(a.Answer.Answer) == 0 {
		a.Ns = []dns.RR{z.soa(a.apex, a.apex, negativeTTL)}
	}
	return a.Answer
}

// answering is an answer at work.
type answering struct {
	Answer
	zone     *Zone
	snapshot *naming.Snapshot
	question Question
	apex     string // as it was typed
	random   *rand.Rand
}

// node is what a name stands for: it adds what there is of it to an answer.
type node func(*answering)

// empty is a name with others below it and nothing at it.
func empty(*answering) {}

// find returns what the name stands for, and whether there is such a name.
func (a *answering) find() (node, bool) {
	labels, ok := relative(a.question.Name, len(a.apex))
	if !ok {
		return nil, false
	}
	switch {
	case len(labels) == 0:
		return (*answering).atApex, true
	case labels[0] == "_tcp" || labels[0] == "_udp":
		_, ok := a.target(labels[1:])
		return empty, ok
	case len(labels) > 1 && strings.HasPrefix(labels[0], "_") && (labels[1] == "_tcp" || labels[1] == "_udp"):
		t, ok := a.target(labels[2:])
		if !ok || !t.hasPort(labels[0][1:], labels[1][1:]) {
			return nil, false
		}
		return func(a *answering) { a.ports(t, labels[0][1:]) }, true
	}
	if t, ok := a.target(labels); ok {
		return func(a *answering) { a.addresses(t) }, true
	}
	switch {
	case len(labels) == 1 && labels[0] == serverLabel:
		return (*answering).atServer, true
	case len(labels) == 1 && labels[0] == servicesLabel,
		len(labels) == 1 && a.snapshot.HasJobs(labels[0]),
		len(labels) == 2 && labels[1] == servicesLabel && a.snapshot.HasServices(labels[0]):
		return empty, true
	}
	return nil, false
}

// relative returns the labels of a name before the last n bytes, in lower case. It is false of
// names that have a label of other characters than those of names and ports of a cell.
func relative(name string, n int) ([]string, bool) {
	if len(name) <= n {
		return nil, true
	}
	name = name[:len(name)-n-1]
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return nil, false
		}
	}
	const most = 6 // _port, _tcp, service, user and svc, and one that is too many
	return strings.SplitN(strings.ToLower(name), ".", most), true
}

// target is what can be reached: one task, a job, or a service.
type target struct {
	user, name string // of the job or service
	job        *naming.Job
	task       *schema.DirectoryTask
	service    *naming.Service
}

// target returns what labels name: INDEX.JOB.USER, JOB.USER or SERVICE.USER.svc.
func (a *answering) target(labels []string) (target, bool) {
	switch len(labels) {
	case 2:
		j, ok := a.snapshot.Job(labels[1], labels[0])
		return target{user: labels[1], name: labels[0], job: j}, ok
	case 3:
		index, isIndex := indexOf(labels[0])
		// A service's name is never all digits, so that user svc has tasks, too.
		if labels[2] == servicesLabel && !isIndex {
			v, ok := a.snapshot.Service(labels[1], labels[0])
			return target{user: labels[1], name: labels[0], service: v}, ok
		}
		j, ok := a.snapshot.Job(labels[2], labels[1])
		if !ok || !isIndex {
			return target{}, false
		}
		t, ok := j.Task(index)
		return target{user: labels[2], name: labels[1], job: j, task: t}, ok
	}
	return target{}, false
}

// indexOf returns the index that a label is, which is written in one way only.
func indexOf(label string) (int, bool) {
	n, err := strconv.ParseUint(label, 10, 31)
	return int(n), err == nil && (label == "0" || label[0] != '0')
}

// hasPort reports whether there is a port of that name and protocol. A task's ports are of both.
func (t *target) hasPort(name, protocol string) bool {
	if t.service != nil {
		p, ok := t.service.Ports[name]
		if p.Protocol == "" {
			p.Protocol = schema.TCP
		}
		return ok && p.Protocol == protocol
	}
	if t.task != nil {
		_, ok := t.task.Ports.Get(name)
		return ok
	}
	for task := range t.job.Tasks() { // all have the ports of one version of the job, or of two
		if _, ok := task.Ports.Get(name); ok {
			return true
		}
	}
	return false
}

// most returns how many addresses or ports an answer may have.
func (a *answering) most() int {
	if a.question.Stream {
		return mostInStream
	}
	return mostInPacket
}

// rand returns the source of what is by chance.
func (a *answering) rand() *rand.Rand {
	if a.random == nil {
		a.random = rand.New(rand.NewPCG(a.question.Seed, 0))
	}
	return a.random
}

// place is a task in an answer.
type place struct {
	job    naming.Name
	weight int
	task   *schema.DirectoryTask
}

// places returns tasks behind a job, or behind a service without an address of its own: at most so many as an
// answer may have, each with the same chance, in an order by chance.
func (a *answering) places(t target) []place {
	var all []place
	take := func(p place) bool {
		all = append(all, p)
		return len(all) < a.most()
	}
	if t.job != nil {
		n := t.job.Ready()
		from := a.from(n)
		a.circle(n, from, func(skip, most int) {
			for task := range t.job.ReadyFrom(skip) {
				if most--; most < 0 || !take(place{t.job.Name, schema.DefaultWeight, task}) {
					return
				}
			}
		})
	} else {
		e := a.snapshot.Endpoints(t.service)
		a.circle(e.Count, a.from(e.Count), func(skip, most int) {
			for p := range e.From(skip) {
				if most--; most < 0 || !take(place{p.Job, p.Weight, p.Task}) {
					return
				}
			}
		})
	}
	if len(all) > 1 {
		a.rand().Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}

// from returns where among n tasks an answer begins that has not all of them.
func (a *answering) from(n int) int {
	if n <= a.most() {
		return 0
	}
	a.Truncated = a.question.Type == dns.TypeSRV && !a.question.Stream
	return a.rand().IntN(n)
}

// circle walks through n tasks from one of them on, and from the first after the last, until there
// are so many as an answer may have.
func (a *answering) circle(n, from int, walk func(skip, most int)) {
	most := min(n, a.most())
	walk(from, most)
	if rest := most - (n - from); rest > 0 && from > 0 {
		walk(0, rest)
	}
}

// addresses adds the addresses of a target.
func (a *answering) addresses(t target) {
	if a.question.Type != dns.TypeA && a.question.Type != dns.TypeAAAA {
		return
	}
	switch {
	case t.task != nil:
		for ip := range t.task.Addresses() {
			a.Answer.Answer = address(a.Answer.Answer, a.question.Name, ip, a.question.Type)
		}
	case t.service != nil && len(t.service.Addresses) > 0:
		for _, ip := range t.service.Addresses {
			a.Answer.Answer = address(a.Answer.Answer, a.question.Name, ip, a.question.Type)
		}
	default:
		all := a.places(t)
		for i, p := range all {
			for ip := range p.task.Addresses() {
				// Two tasks of a job can have the address of one machine.
				if !slices.ContainsFunc(all[:i], func(o place) bool { return o.task.At(ip) }) {
					a.Answer.Answer = address(a.Answer.Answer, a.question.Name, ip, a.question.Type)
				}
			}
		}
	}
}

// ports adds where the port of a target is, and the addresses of those names.
func (a *answering) ports(t target, port string) {
	if a.question.Type != dns.TypeSRV {
		return
	}
	name := port
	switch {
	case t.task != nil:
		a.port(place{t.job.Name, schema.DefaultWeight, t.task}, name)
		return
	case t.service != nil && len(t.service.Addresses) > 0:
		a.srv(a.serviceName(t), t.service.Ports[port].Port, schema.DefaultWeight, slices.Values(t.service.Addresses))
		return
	case t.service != nil && t.service.Ports[port].Target != "":
		name = t.service.Ports[port].Target
	}
	for _, p := range a.places(t) {
		a.port(p, name)
	}
}

// port adds where a port of a task is.
func (a *answering) port(p place, port string) {
	if number, ok := p.task.Ports.Get(port); ok && p.task.Address.IsValid() {
		name := strconv.Itoa(p.task.Index) + "." + p.job.Name + "." + p.job.User + "." + a.apex
		a.srv(name, number, p.weight, p.task.Addresses())
	}
}

func (a *answering) serviceName(t target) string {
	return t.name + "." + t.user + "." + servicesLabel + "." + a.apex
}

func (a *answering) srv(name string, port, weight int, ips iter.Seq[netip.Addr]) {
	if len(name) > longest {
		return
	}
	a.Answer.Answer = append(a.Answer.Answer, &dns.SRV{
		Hdr:  header(a.question.Name, dns.TypeSRV, positiveTTL),
		Port: uint16(port), Weight: uint16(weight), Target: name,
	})
	for ip := range ips {
		a.Extra = address(a.Extra, name, ip, dns.TypeA)
		a.Extra = address(a.Extra, name, ip, dns.TypeAAAA)
	}
}

// atApex adds what there is of the zone itself.
func (a *answering) atApex() {
	switch a.question.Type {
	case dns.TypeSOA:
		a.Answer.Answer = []dns.RR{a.zone.soa(a.apex, a.apex, positiveTTL)}
	case dns.TypeNS:
		a.Answer.Answer = []dns.RR{&dns.NS{Hdr: header(a.question.Name, dns.TypeNS, positiveTTL), Ns: a.server()}}
		for _, ip := range a.zone.self {
			a.Extra = address(a.Extra, a.server(), ip, dns.TypeA)
			a.Extra = address(a.Extra, a.server(), ip, dns.TypeAAAA)
		}
	}
}

// atServer adds the addresses of this server.
func (a *answering) atServer() {
	for _, ip := range a.zone.self {
		a.Answer.Answer = address(a.Answer.Answer, a.question.Name, ip, a.question.Type)
	}
}

func (a *answering) server() string { return serverLabel + "." + a.apex }

// soa returns the SOA of a zone, for which no answer is kept longer than ttl. Its serial number
// says nothing: no server has a copy. names is the apex of the zone that has this server's name.
func (*Zone) soa(apex, names string, ttl uint32) dns.RR {
	return &dns.SOA{
		Hdr: header(apex, dns.TypeSOA, ttl),
		Ns:  serverLabel + "." + names, Mbox: "hostmaster." + names,
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTL,
	}
}

func header(name string, kind uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

// address adds an address to records if it is of the kind, which is dns.TypeA or dns.TypeAAAA.
func address(to []dns.RR, name string, ip netip.Addr, kind uint16) []dns.RR {
	ip = ip.Unmap()
	switch {
	case ip.Is4() && kind == dns.TypeA:
		return append(to, &dns.A{Hdr: header(name, dns.TypeA, positiveTTL), A: net.IP(ip.AsSlice())})
	case ip.Is6() && kind == dns.TypeAAAA:
		return append(to, &dns.AAAA{Hdr: header(name, dns.TypeAAAA, positiveTTL), AAAA: net.IP(ip.AsSlice())})
	}
	return to
}
