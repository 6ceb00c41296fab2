package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// path returns where a document is. A machine's identity is in two places: see
// identity.
func (d *disk) path(x nodeagent.Document) string {
	switch dir := d.dir(x.Task, x.Generation); x.Kind {
	case nodeagent.AssignmentDocument:
		return filepath.Join(dir, assignmentFile)
	case nodeagent.EndDocument:
		return filepath.Join(dir, endFile)
	case nodeagent.StopDocument:
		return filepath.Join(incarnationDir(dir, x.Incarnation), stopFile)
	case nodeagent.HealthDocument:
		return filepath.Join(incarnationDir(dir, x.Incarnation), healthFile)
	case nodeagent.GivenDocument:
		return filepath.Join(incarnationDir(dir, x.Incarnation), givenFile)
	case nodeagent.IdleDocument:
		return filepath.Join(d.stickyDir(x.Task), idleFile)
	case nodeagent.ViewDocument:
		return filepath.Join(d.root, viewFile)
	case nodeagent.IdentityDocument:
	}
	return filepath.Join(d.root, identityFile)
}

// store makes a document of the machine durable, with what nodeagent.Agent says is its
// content.
func (d *disk) store(machine string, x nodeagent.Document, content any) error {
	switch c := content.(type) {
	case nodeagent.Memory:
		return d.writeMemory(machine, c)
	case *schema.Assignment:
		return d.writeAssignment(c)
	case nodeagent.Given:
		return d.write(d.path(x), givenDocument{c})
	case nodeagent.Probe:
		return d.write(d.path(x), knownHealth{c.State, c.Message, c.HealthyAfter, c.HealthyBy})
	case time.Time:
		return d.write(d.path(x), idleDocument{c})
	}
	return d.write(d.path(x), content)
}

// trouble returns err as a *nodeagent.DiskError if it is the disk's.
func trouble(err error) error {
	switch {
	case err == nil:
		return nil
	case noRoom(err):
		return &nodeagent.DiskError{Err: err, Trouble: nodeagent.DiskFull}
	case noWrite(err):
		return &nodeagent.DiskError{Err: err, Trouble: nodeagent.DiskReadOnly}
	case errors.Is(err, fs.ErrNotExist):
		return &nodeagent.DiskError{Err: err, Trouble: nodeagent.Vanished}
	}
	return err
}

// viewDocument is a nodeagent.Memory on disk. A job's data is there once, however many of
// its tasks the machine has.
type viewDocument struct {
	Epoch uint64 `json:"epoch"`
	// Machine is whose it is; "" in one of an earlier release.
	Machine string                        `json:"machine,omitempty"`
	View    *schema.View                  `json:"view,omitempty"` // without Job
	Jobs    map[schema.Digest]*schema.Job `json:"jobs,omitempty"`
}

func (d *disk) writeMemory(machine string, m nodeagent.Memory) error {
	doc := viewDocument{Epoch: m.Epoch, Machine: machine}
	if m.View != nil {
		view := *m.View
		view.Assignments = append([]schema.Assignment{}, view.Assignments...)
		for i := range view.Assignments {
			view.Assignments[i].Job = nil
		}
		doc.View, doc.Jobs = &view, maps.Collect(m.View.Jobs())
	}
	name := filepath.Join(d.root, viewFile)
	text, err := json.Marshal(doc)
	if err == nil {
		err = d.write(name, json.RawMessage(text))
	}
	if err != nil {
		return fmt.Errorf("keep the view: %w", err)
	}
	_ = d.writeSoon(durable.Second(name), json.RawMessage(text)) // the first is there
	return nil
}

// writeSoon is write for what is of use while the machine is up, and need not survive
// that it goes down: it does not wait for the disk.
func (d *disk) writeSoon(name string, v any) error {
	b, err := durable.Seal(d.id(name), v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := name + ".new"
	if err := errors.Join(atomicfile.Aside(temp), os.WriteFile(temp, b, 0o600)); err != nil {
		return err
	}
	return atomicfile.Replace(temp, name)
}

// readMemory reads what was kept for the machine; nothing if it is damaged. It is kept
// twice, and the second copy is written last: a first that is older was put there by
// somebody, and would have tasks stopped that are to run.
func (d *disk) readMemory(machine string) (nodeagent.Memory, error) {
	name := filepath.Join(d.root, viewFile)
	m, first, err := d.readView(name, machine)
	if err != nil {
		return nodeagent.Memory{}, err
	}
	other, second, err := d.readView(durable.Second(name), machine)
	if err != nil || !second || first && !newer(&other, &m) {
		return m, nil //nolint:nilerr // the first is good without it
	}
	if first {
		d.reportDamage(name, "it is older than its other copy", true)
	} else if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		d.reportDamage(name, "it is missing; its other copy is there", true)
	}
	return other, d.writeMemory(machine, other)
}

// newer reports whether a was kept after b.
func newer(a, b *nodeagent.Memory) bool {
	return a.Epoch > b.Epoch || a.View != nil && a.View.Newer(b.View)
}

// readView reads one of the copies; false if it is not there, or damaged.
func (d *disk) readView(name, machine string) (m nodeagent.Memory, ok bool, err error) {
	var doc viewDocument
	if ok, _, err := d.read(name, &doc); err != nil || !ok {
		return m, false, err
	}
	if doc.Machine != "" && doc.Machine != machine {
		return m, false, fmt.Errorf("%s is of machine %s", name, doc.Machine)
	}
	if doc.View != nil {
		for i := range doc.View.Assignments {
			a := &doc.View.Assignments[i]
			if a.Job = doc.Jobs[a.Data]; a.Job == nil {
				return m, false, fmt.Errorf("%s lacks the data %s of %s", name, a.Data, a.Task)
			}
		}
	}
	return nodeagent.Memory{Epoch: doc.Epoch, View: doc.View}, true, nil
}

// healthFile is what is known of an incarnation's health, in its directory: an
// agent that was restarted has not asked yet.
const healthFile = "health.json"

// knownHealth is the content of healthFile.
type knownHealth struct {
	State   schema.HealthState `json:"state"`
	Message string             `json:"message,omitempty"`
	// After and By are Probe.HealthyAfter, in nanoseconds, and Probe.HealthyBy; a file of an
	// earlier release has none.
	After time.Duration `json:"after,omitempty"`
	By    schema.Digest `json:"by,omitempty"`
}

// readHealth returns what an earlier agent knew of the health of the incarnation
// in dir.
func (d *disk) readHealth(dir string) nodeagent.Probe {
	var k knownHealth
	name := filepath.Join(dir, healthFile)
	ok, damage, err := d.read(name, &k)
	if err != nil || !ok { // it is asked again
		if damage != nil {
			_ = atomicfile.MoveAside(name) // or it is found again
		}
		return nodeagent.Probe{}
	}
	p := nodeagent.Known(k.State, k.Message)
	p.HealthyAfter, p.HealthyBy = max(0, k.After), k.By
	return p
}

// givenFile is what an incarnation was given after its start, in its directory.
const givenFile = "given.json"

// givenDocument is the content of givenFile. It is no map: that would have the checksum of
// the document among its keys.
type givenDocument struct {
	Given nodeagent.Given `json:"given"`
}

// readGiven returns what the incarnation in dir was given after its start; false if that
// is nothing, or damaged: then it is given all of it again that is not as at its start.
func (d *disk) readGiven(dir string) (nodeagent.Given, bool, error) {
	var g givenDocument
	name := filepath.Join(dir, givenFile)
	ok, damage, err := d.read(name, &g)
	if damage != nil {
		return nil, false, atomicfile.MoveAside(name)
	}
	return g.Given, ok, err
}

// readStop reads why the incarnation in dir was to stop; nil if it was not. Of
// one that is damaged it is known that there was a reason.
func (d *disk) readStop(dir string) (*schema.Cause, error) {
	var stop schema.Cause
	name := filepath.Join(dir, stopFile)
	ok, lost, err := d.read(name, &stop)
	switch {
	case lost != nil:
		stop = schema.Cause{Kind: schema.CauseUnknown, Message: lost.Error(), At: time.Now()}
		return &stop, d.write(name, &stop)
	case err != nil || !ok:
		return nil, err
	}
	return &stop, nil
}
