package stage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/schema"
)

// The policies that are for a package may take as much as the package itself, and what they take is counted apart:
// whose fault it is that an evaluation takes too much nobody could say otherwise, and policies that are heavy only with
// the objects that they are applied to would be reported in each package that they are for.

// Usage is what an evaluation has used, or may.
type Usage struct {
	CPU    time.Duration
	Allocs uint64 // bytes, collected again or not
}

// Minus returns the difference.
func (s Usage) Minus(o Usage) Usage { return Usage{s.CPU - o.CPU, s.Allocs - o.Allocs} }

// Plus returns the sum.
func (s Usage) Plus(o Usage) Usage { return Usage{s.CPU + o.CPU, s.Allocs + o.Allocs} }

// Part returns one of so many parts, all of it for 0.
func (s Usage) Part(parts int) Usage {
	parts = max(1, parts)
	return Usage{s.CPU / time.Duration(parts), s.Allocs / uint64(parts)}
}

// Policy is the policy that a child is at, as it reports it to its parent. The zero value is none.
type Policy struct {
	schema.Position
	Field  string `json:"field"`  // its data path, such as _policy.owner
	Object string `json:"object"` // that it is applied to, such as job.web
}

// Stage is what an evaluation is at.
type Stage int

// The stages of an evaluation.
const (
	Package  Stage = iota
	Policies       // that are for the package
	Heavy          // those of them that were too much for other packages, and have a part of the limits
)

// reportAfter is how much processor time policies take before a child reports at which of them it is.
const reportAfter = 100 * time.Millisecond

// Stages of an evaluation, which is at its package first. A nil *Stages counts nothing. Several goroutines may use it.
type Stages struct {
	spent  func() Usage
	little func() bool
	most   Usage
	parts  int

	mu       sync.Mutex
	now      Stage
	since    Usage
	used     [3]Usage // by stage, without what is used since
	at       Policy   // the last one
	small    bool     // there was little in memory when now began
	reported Policy
}

// New returns the stages of an evaluation that begins: spent returns what the process has used so far, little
// reports whether little is in memory, most is what each stage may use, and Heavy has one of so many parts of it, all of
// it for 0.
func New(spent func() Usage, little func() bool, most Usage, parts int) *Stages {
	return &Stages{spent: spent, little: little, most: most, parts: parts, since: spent()}
}

// Enter begins another stage.
func (s *Stages) Enter(stage Stage) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.spent()
	s.used[s.now] = s.used[s.now].Plus(now.Minus(s.since))
	s.now, s.since, s.small = stage, now, s.little()
}

// At says which policy is evaluated from now on.
func (s *Stages) At(at Policy) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
}

// Exceeded reports whether a stage has used more than it may: of processor time, or of what is allocated. It writes to w
// which policy it is then, if it is one.
func (s *Stages) Exceeded(w io.Writer) (cpu, allocs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.used
	used[s.now] = used[s.now].Plus(s.spent().Minus(s.since))
	for stage, of := range used {
		most := s.most
		if Stage(stage) == Heavy {
			most = most.Part(s.parts)
		}
		if cpu, allocs = of.CPU > most.CPU, of.Allocs > most.Allocs; cpu || allocs {
			s.report(w, Stage(stage) != Package)
			return cpu, allocs
		}
	}
	if used[Policies].CPU+used[Heavy].CPU > reportAfter { // it may not be able to later
		s.report(w, s.now != Package)
	}
	return false, false
}

// Full writes to w at which policy the process was when its memory was full, unless its package has much there by
// itself.
func (s *Stages) Full(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(w, s.now != Package && s.small)
}

// report writes to w at which policy the process is, or that it is at none, if that is not what it has written before.
// The caller holds s.mu.
func (s *Stages) report(w io.Writer, is bool) {
	var at Policy
	if is {
		at = s.at
	}
	if at == s.reported {
		return
	}
	s.reported = at
	line, err := json.Marshal(at)
	if err != nil {
		return // it has nothing that cannot be encoded
	}
	_, _ = fmt.Fprintf(w, "%s%s\n", prefix, line) // in one call
}

// prefix begins a line that says which policy a child is at.
const prefix = "muster-policy "

// Read returns what a line says that Stages wrote; ok is false if it is another line.
func Read(line []byte) (at Policy, ok bool) {
	said, ok := bytes.CutPrefix(line, []byte(prefix))
	return at, ok && json.Unmarshal(said, &at) == nil
}
