package linkpb

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhq/muster/schema"
)

// EncodeJob returns the message that carries the data of a job. It errs when
// digest is not the digest of j.
func EncodeJob(digest schema.Digest, j *schema.Job) (*Data, error) {
	b := schema.Canonical(j)
	if d := schema.DigestBytes(b); d != digest {
		return nil, fmt.Errorf("data of job %s has digest %s: want %s", j.ID(), d, digest)
	}
	return &Data{Digest: string(digest), Json: b}, nil
}

// DecodeJob returns the job of a message. It errs when the bytes do not have
// the digest they are said to have, or are no job.
func DecodeJob(m *Data) (*schema.Job, error) {
	if d := schema.DigestBytes(m.GetJson()); string(d) != m.GetDigest() {
		return nil, fmt.Errorf("job data has digest %s: want %.80q", d, m.GetDigest())
	}
	j := new(schema.Job)
	if err := json.Unmarshal(m.GetJson(), j); err != nil {
		return nil, fmt.Errorf("job data %s: %w", m.GetDigest(), err)
	}
	return j, nil
}

// EncodeJobs returns the messages that carry the data to which a view refers, but for
// what the other end has.
func EncodeJobs(v *schema.View, has map[schema.Digest]bool) ([]*Data, error) {
	var out []*Data
	for digest, job := range v.Jobs() {
		if has[digest] {
			continue
		}
		d, err := EncodeJob(digest, job)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}

// EncodeView returns the message that carries a view, without the data that it refers to.
func EncodeView(v *schema.View) *View {
	m := &View{Epoch: v.Epoch, Version: v.Version, Assignments: make([]*Assignment, len(v.Assignments))}
	for i := range v.Assignments {
		m.Assignments[i] = encodeAssignment(&v.Assignments[i])
	}
	if len(v.Registries) > 0 {
		m.Registries = schema.Canonical(v.Registries)
	}
	return m
}

// DecodeView returns the view of a message; data holds the jobs it may refer to. It errs
// when one is missing.
func DecodeView(m *View, data map[schema.Digest]*schema.Job) (schema.View, error) {
	v := schema.View{Epoch: m.GetEpoch(), Version: m.GetVersion(), Assignments: make([]schema.Assignment, len(m.GetAssignments()))}
	for i, p := range m.GetAssignments() {
		a, err := decodeAssignment(p, data)
		if err != nil {
			return schema.View{}, err
		}
		v.Assignments[i] = a
	}
	if b := m.GetRegistries(); len(b) > 0 {
		if err := json.Unmarshal(b, &v.Registries); err != nil {
			return schema.View{}, fmt.Errorf("registries of a view: %w", err)
		}
	}
	return v, nil
}

func encodeAssignment(a *schema.Assignment) *Assignment {
	return &Assignment{
		Task: a.Task.String(), Generation: a.Generation, Data: string(a.Data),
		Ports: encodePorts(a.Ports), Devices: encodeDevices(a.Devices), Stop: encodeCause(a.Stop), Alloc: encodeAlloc(a.Alloc), Bring: a.Bring,
		OwnNetwork: a.OwnNetwork,
	}
}

func decodeAssignment(m *Assignment, data map[schema.Digest]*schema.Job) (schema.Assignment, error) {
	task, err := schema.ParseTaskName(m.GetTask())
	if err != nil {
		return schema.Assignment{}, err
	}
	a := schema.Assignment{
		Task: task, Generation: m.GetGeneration(), Data: schema.Digest(m.GetData()), Alloc: decodeAlloc(m.GetAlloc()), Bring: m.GetBring(),
		OwnNetwork: m.GetOwnNetwork(),
	}
	if a.Job = data[a.Data]; a.Job == nil {
		return a, fmt.Errorf("assignment of %s: data %.80q was not sent", task, a.Data)
	}
	if a.Ports, err = decodePorts(m.GetPorts()); err == nil {
		if a.Devices, err = decodeDevices(m.GetDevices()); err == nil {
			a.Stop, err = decodeCause(m.GetStop())
		}
	}
	if err != nil {
		return a, fmt.Errorf("assignment of %s: %w", task, err)
	}
	return a, nil
}

// EncodeReport returns the encoded ReportBody of a report and its digest. The
// same report gives the same bytes within one build of the agent, which is all
// that recognising an unchanged one needs.
func EncodeReport(r *schema.Report) (body, digest []byte, err error) {
	m := &ReportBody{
		Machine: EncodeMachine(&r.Machine), View: r.View,
		BusyPorts: make([]uint32, len(r.BusyPorts)), Tasks: make([]*TaskStatus, len(r.Tasks)),
		Overload:   encodeOverload(r.Overload),
		Conditions: encodeConditions(r.Conditions),
	}
	for i, p := range r.BusyPorts {
		m.BusyPorts[i] = uint32(p)
	}
	for i := range r.Tasks {
		m.Tasks[i] = encodeTask(&r.Tasks[i])
	}
	body, err = proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, nil, fmt.Errorf("report of machine %s: %w", r.Machine.Name, err)
	}
	sum := sha256.Sum256(body)
	return body, sum[:], nil
}

// DecodeReport returns the report of a Report message that has a body. It errs
// when the body does not have the digest it is said to have.
func DecodeReport(m *Report) (schema.Report, error) {
	if !sameDigest(m) {
		return schema.Report{}, fmt.Errorf("report has digest %x: want %x", sha256.Sum256(m.GetBody()), m.GetDigest())
	}
	var b ReportBody
	if err := Unmarshal(m.GetBody(), &b); err != nil {
		return schema.Report{}, fmt.Errorf("report: %w", err)
	}
	machine, err := DecodeMachine(b.GetMachine())
	if err != nil {
		return schema.Report{}, fmt.Errorf("report: %w", err)
	}
	r, err := decodeBody(machine, &b)
	if err != nil {
		return schema.Report{}, err
	}
	r.Tasks = slices.Grow(r.Tasks, len(b.GetTasks())) // exactly: it is kept
	for _, p := range b.GetTasks() {
		t, err := decodeTask(p)
		if err != nil {
			return schema.Report{}, fmt.Errorf("report of machine %s: %w", machine.Name, err)
		}
		r.Tasks = append(r.Tasks, t)
	}
	return r, nil
}

// sameDigest reports whether the body of a report has the digest that it is said to have.
func sameDigest(m *Report) bool {
	sum := sha256.Sum256(m.GetBody())
	return bytes.Equal(sum[:], m.GetDigest())
}

// decodeBody decodes all of a report but its tasks and its machine.
func decodeBody(machine schema.MachineInfo, b *ReportBody) (schema.Report, error) {
	var err error
	r := schema.Report{Machine: machine, View: b.GetView()}
	if r.Conditions, err = decodeConditions(b.GetConditions()); err != nil {
		return schema.Report{}, fmt.Errorf("report of machine %s: %w", machine.Name, err)
	}
	for _, p := range b.GetBusyPorts() {
		port, err := decodePort(p)
		if err != nil {
			return schema.Report{}, fmt.Errorf("report of machine %s: busy %w", machine.Name, err)
		}
		r.BusyPorts = append(r.BusyPorts, port)
	}
	if r.Overload, err = decodeOverload(b.GetOverload()); err != nil {
		return schema.Report{}, fmt.Errorf("report of machine %s: %w", machine.Name, err)
	}
	return r, nil
}

// EncodeMachine returns the message of what a machine says of itself.
func EncodeMachine(i *schema.MachineInfo) *MachineInfo {
	m := &MachineInfo{
		Name: i.Name, Boot: i.Boot,
		Capacity:   &Resources{CpuMilli: i.Capacity.CPUMilli, RamBytes: i.Capacity.RAMBytes, DiskBytes: i.Capacity.DiskBytes},
		Ports:      &PortRange{First: uint32(i.Ports.First), Last: uint32(i.Ports.Last)},
		Attributes: i.Attributes, Notes: i.Notes, AgentVersion: i.AgentVersion,
		SeenEpoch: i.Seen.Epoch, SeenGeneration: i.Seen.Generation, Id: i.ID, Recipient: i.Recipient, Address: i.Address, Shares: i.Shares,
	}
	if r := i.Reserved; r != (schema.Resources{}) {
		m.Reserved = &Resources{CpuMilli: r.CPUMilli, RamBytes: r.RAMBytes, DiskBytes: r.DiskBytes}
	}
	for _, d := range i.Devices {
		m.Devices = append(m.Devices, &DeviceGroup{Kind: d.Kind, Model: d.Model, Count: uint32(d.Count), Attributes: d.Attributes})
	}
	return m
}

// DecodeMachine returns what a machine says of itself. It errs when the name is
// none, another one is too long, or a port is out of range.
func DecodeMachine(m *MachineInfo) (schema.MachineInfo, error) {
	if err := schema.CheckName(m.GetName()); err != nil {
		return schema.MachineInfo{}, fmt.Errorf("machine: %w", err)
	}
	first, err := decodePort(m.GetPorts().GetFirst())
	if err != nil {
		return schema.MachineInfo{}, fmt.Errorf("machine %s: first %w", m.GetName(), err)
	}
	last, err := decodePort(m.GetPorts().GetLast())
	if err != nil {
		return schema.MachineInfo{}, fmt.Errorf("machine %s: last %w", m.GetName(), err)
	}
	devices, err := decodeDeviceGroups(m.GetDevices())
	if err != nil {
		return schema.MachineInfo{}, fmt.Errorf("machine %s: %w", m.GetName(), err)
	}
	if m.GetAddress() != "" {
		if err := schema.CheckAddress(m.GetAddress()); err != nil {
			return schema.MachineInfo{}, fmt.Errorf("machine %s: %w", m.GetName(), err)
		}
	}
	err = cmp.Or(checkNames(named{"boot", m.GetBoot()}, named{"id", m.GetId()}, named{"shares", m.GetShares()}), checkReferences("recipient", m.GetRecipient()))
	attributes, tooLong := decodeAttributes(m.GetAttributes())
	if err = cmp.Or(err, tooLong); err != nil {
		return schema.MachineInfo{}, fmt.Errorf("machine %s: %w", m.GetName(), err)
	}
	notes := slices.Clone(m.GetNotes())
	for i := range notes {
		notes[i] = Text(notes[i])
	}
	c, r := m.GetCapacity(), m.GetReserved()
	return schema.MachineInfo{
		Name: m.GetName(), Boot: m.GetBoot(),
		Capacity:   schema.Resources{CPUMilli: c.GetCpuMilli(), RAMBytes: c.GetRamBytes(), DiskBytes: c.GetDiskBytes()},
		Reserved:   schema.Resources{CPUMilli: r.GetCpuMilli(), RAMBytes: r.GetRamBytes(), DiskBytes: r.GetDiskBytes()},
		Ports:      schema.PortRange{First: first, Last: last},
		Devices:    devices,
		Attributes: attributes, Notes: notes, AgentVersion: Text(m.GetAgentVersion()), ID: m.GetId(), Recipient: m.GetRecipient(), Address: m.GetAddress(), Shares: m.GetShares(),
		Seen: schema.Seen{Epoch: m.GetSeenEpoch(), Generation: m.GetSeenGeneration()},
	}, nil
}

// decodeAttributes returns attributes, of which the beginning of a long value is taken. It errs for a key
// that is too long.
func decodeAttributes(m map[string]string) (map[string]string, error) {
	out, cut := m, false
	for key, value := range m {
		if err := checkNames(named{"the key of an attribute", key}); err != nil {
			return nil, err
		}
		if len(value) <= MaxText {
			continue
		}
		if !cut {
			out, cut = maps.Clone(m), true // m is the message's
		}
		out[key] = Text(value)
	}
	return out, nil
}

// EncodeLogRequest returns the message that asks an agent for a log; id names
// the stream that shall carry it.
func EncodeLogRequest(id string, r *schema.LogRequest) *OpenLogs {
	m := &OpenLogs{
		Id: id, Task: r.Task.String(), Generation: r.Generation, Incarnation: int32(r.Incarnation),
		Stream: string(r.Stream), Follow: r.Follow,
		Previous: r.Previous, Since: encodeTime(r.Since), Framed: r.Framed,
	}
	if f := r.From; f != nil {
		m.From = &LogPosition{Generation: f.Generation, Incarnation: int32(f.Incarnation), Offset: f.Offset}
	}
	if r.Tail >= 0 {
		m.Tail = proto.Int32(int32(min(r.Tail, 1<<30)))
	}
	return m
}

// DecodeLogRequest returns the request of a message. It errs when there is no
// such task name or stream.
func DecodeLogRequest(m *OpenLogs) (schema.LogRequest, error) {
	task, err := schema.ParseTaskName(m.GetTask())
	if err != nil {
		return schema.LogRequest{}, err
	}
	stream, err := schema.ParseLogStream(m.GetStream())
	if err != nil {
		return schema.LogRequest{}, err
	}
	since, err := decodeTime(m.GetSince())
	if err != nil {
		return schema.LogRequest{}, err
	}
	r := schema.LogRequest{
		Task: task, Generation: m.GetGeneration(), Incarnation: int(m.GetIncarnation()),
		Stream: stream, Follow: m.GetFollow(), Tail: -1,
		Previous: m.GetPrevious(), Since: since, Framed: m.GetFramed(),
	}
	if f := m.GetFrom(); f != nil {
		r.From = &schema.LogPosition{Generation: f.GetGeneration(), Incarnation: int(f.GetIncarnation()), Offset: f.GetOffset()}
	}
	if m.Tail != nil {
		r.Tail = max(int(m.GetTail()), 0)
	}
	return r, nil
}

func encodeAlloc(u *schema.AllocUse) *AllocUse {
	if u == nil {
		return nil
	}
	return &AllocUse{Set: u.Set, Index: uint32(u.Index), Generation: u.Generation}
}

func decodeAlloc(m *AllocUse) *schema.AllocUse {
	if m == nil {
		return nil
	}
	return &schema.AllocUse{Set: m.GetSet(), Index: int(m.GetIndex()), Generation: m.GetGeneration()}
}

func encodeTask(t *schema.TaskStatus) *TaskStatus {
	m := &TaskStatus{
		Task: t.Task.String(), Generation: t.Generation, State: string(t.State), Incarnation: int32(t.Incarnation),
		Pid: int32(t.PID), StartedAt: encodeTime(t.StartedAt), Ports: encodePorts(t.Ports), Health: string(t.Health),
		Devices: encodeDevices(t.Devices),
		Exits:   make([]*Exit, len(t.Exits)), End: encodeCause(t.End), Note: t.Note,
		HealthMessage: t.HealthMessage, Line: t.Line, Failures: int32(t.Failures), RestartAt: encodeTime(t.RestartAt),
		Data: string(t.Data), Alloc: encodeAlloc(t.Alloc),
		OomKills: t.OOMKills, Unconfirmed: t.Unconfirmed, Withheld: t.Withheld, Stuck: t.Stuck, Unchecked: t.Unchecked, HealthyMillis: t.HealthyMillis, Brought: t.Brought, Attempt: int32(t.Attempt),
	}
	for i := range t.Exits {
		m.Exits[i] = encodeExit(&t.Exits[i])
	}
	m.OwnNetwork = t.Own != nil
	for _, a := range t.Own.At() {
		m.Addresses = append(m.Addresses, a.String())
	}
	return m
}

// decodeAddresses reads a task's own addresses.
func decodeAddresses(m []string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, text := range m {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() || !a.IsGlobalUnicast() {
			return nil, fmt.Errorf("address %.80q: want one of IP that others can reach", text)
		}
		out = append(out, a)
	}
	return out, nil
}

// The states of tasks by their words: one string for each, not one for each task.
var (
	taskStates = map[string]schema.TaskState{
		string(schema.Starting): schema.Starting, string(schema.Running): schema.Running, string(schema.Waiting): schema.Waiting,
		string(schema.Stopping): schema.Stopping, string(schema.Dead): schema.Dead,
	}
	healthStates = map[string]schema.HealthState{
		string(schema.HealthUnknown): schema.HealthUnknown, string(schema.Healthy): schema.Healthy, string(schema.Unhealthy): schema.Unhealthy,
	}
)

func decodeTask(m *TaskStatus) (schema.TaskStatus, error) {
	task, err := schema.ParseTaskName(m.GetTask())
	if err != nil {
		return schema.TaskStatus{}, err
	}
	state, ok := taskStates[m.GetState()]
	if !ok {
		return schema.TaskStatus{}, fmt.Errorf("task %s: unknown state %.80q", task, m.GetState())
	}
	t := schema.TaskStatus{
		Task: task, Generation: m.GetGeneration(), State: state,
		Incarnation: int(m.GetIncarnation()), Attempt: int(m.GetAttempt()), PID: int(m.GetPid()),
		Health: schema.HealthState(m.GetHealth()), Note: Text(m.GetNote()), Brought: m.GetBrought(),
		HealthMessage: Text(m.GetHealthMessage()), Line: Text(m.GetLine()), Failures: int(m.GetFailures()), OOMKills: max(0, m.GetOomKills()),
		Data: schema.Digest(m.GetData()), Alloc: decodeAlloc(m.GetAlloc()), Unconfirmed: m.GetUnconfirmed(), Withheld: m.GetWithheld(), Stuck: m.GetStuck(),
		Checking: schema.Checking{Unchecked: m.GetUnchecked(), HealthyMillis: max(0, m.GetHealthyMillis())},
	}
	if health, ok := healthStates[m.GetHealth()]; ok {
		t.Health = health
	}
	err = checkNames(named{"health", m.GetHealth()}, named{"data", m.GetData()}, named{"alloc set", m.GetAlloc().GetSet()})
	if err = cmp.Or(err, checkReferences("what was brought", m.GetBrought()...)); err != nil {
		return t, fmt.Errorf("task %s: %w", task, err)
	}
	if t.StartedAt, err = decodeTime(m.GetStartedAt()); err != nil {
		return t, fmt.Errorf("task %s: started: %w", task, err)
	}
	if t.RestartAt, err = decodeTime(m.GetRestartAt()); err != nil {
		return t, fmt.Errorf("task %s: restart: %w", task, err)
	}
	if t.Ports, err = decodePorts(m.GetPorts()); err != nil {
		return t, fmt.Errorf("task %s: %w", task, err)
	}
	if t.Devices, err = decodeDevices(m.GetDevices()); err != nil {
		return t, fmt.Errorf("task %s: %w", task, err)
	}
	at, err := decodeAddresses(m.GetAddresses())
	if err != nil {
		return t, fmt.Errorf("task %s: %w", task, err)
	}
	if m.GetOwnNetwork() {
		t.Own = &schema.TaskNetwork{Addresses: at}
	}
	for _, p := range m.GetExits() {
		e, err := decodeExit(p)
		if err != nil {
			return t, fmt.Errorf("task %s: %w", task, err)
		}
		t.Exits = append(t.Exits, e)
	}
	if t.End, err = decodeCause(m.GetEnd()); err != nil {
		return t, fmt.Errorf("task %s: %w", task, err)
	}
	return t, nil
}

func encodeCause(c *schema.Cause) *Cause {
	if c == nil {
		return nil
	}
	m := &Cause{
		Kind: string(c.Kind), Message: c.Message, Machine: c.Machine,
		Generation: c.Generation, At: encodeTime(c.At), Resource: string(c.Resource),
	}
	if c.Exit != nil {
		m.Exit = encodeExit(c.Exit)
	}
	return m
}

func decodeCause(m *Cause) (*schema.Cause, error) {
	if m == nil {
		return nil, nil
	}
	if err := checkNames(named{"the kind of a cause", m.GetKind()}, named{"the machine of a cause", m.GetMachine()}, named{"the resource of a cause", m.GetResource()}); err != nil {
		return nil, err
	}
	at, err := decodeTime(m.GetAt())
	if err != nil {
		return nil, fmt.Errorf("cause %q: %w", m.GetKind(), err)
	}
	c := &schema.Cause{
		Kind: schema.CauseKind(m.GetKind()), Message: Text(m.GetMessage()), Machine: m.GetMachine(),
		Generation: m.GetGeneration(), At: at, Resource: schema.Resource(m.GetResource()),
	}
	if m.GetExit() != nil {
		e, err := decodeExit(m.GetExit())
		if err != nil {
			return nil, fmt.Errorf("cause %q: %w", m.GetKind(), err)
		}
		c.Exit = &e
	}
	return c, nil
}

func encodeExit(e *schema.Exit) *Exit {
	return &Exit{
		Incarnation: int32(e.Incarnation), Code: int32(e.Code), Signal: e.Signal,
		Oom: e.OOM, At: encodeTime(e.At), Message: e.Message, Blameless: e.Blameless,
	}
}

func decodeExit(m *Exit) (schema.Exit, error) {
	at, err := decodeTime(m.GetAt())
	if err = cmp.Or(err, checkNames(named{"signal", m.GetSignal()})); err != nil {
		return schema.Exit{}, fmt.Errorf("exit: %w", err)
	}
	return schema.Exit{
		Incarnation: int(m.GetIncarnation()), Code: int(m.GetCode()), Signal: m.GetSignal(),
		OOM: m.GetOom(), At: at, Message: Text(m.GetMessage()), Blameless: m.GetBlameless(),
	}, nil
}

// encodeTime drops the zone and the monotonic clock; the zero time is absent.
func encodeTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func decodeTime(m *timestamppb.Timestamp) (time.Time, error) {
	if m == nil {
		return time.Time{}, nil
	}
	if err := m.CheckValid(); err != nil {
		return time.Time{}, err
	}
	return m.AsTime(), nil
}

func encodePorts(ports schema.Ports) map[string]uint32 {
	if len(ports) == 0 {
		return nil
	}
	m := make(map[string]uint32, len(ports))
	for _, p := range ports {
		m[p.Name] = uint32(p.Port)
	}
	return m
}

func decodePorts(m map[string]uint32) (schema.Ports, error) {
	if len(m) == 0 {
		return nil, nil
	}
	ports := make([]schema.Port, 0, len(m))
	for name, p := range m {
		if err := checkNames(named{"the name of a port", name}); err != nil {
			return nil, err
		}
		port, err := decodePort(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		ports = append(ports, schema.Port{Name: name, Port: port})
	}
	return schema.NewPorts(ports...), nil
}

// decodePort accepts 0, which an empty range has.
func decodePort(p uint32) (int, error) {
	if p > 65535 {
		return 0, fmt.Errorf("port %d: want at most 65535", p)
	}
	return int(p), nil
}
