package control

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
)

// Memo is what one step finds out that spares the next one work: which jobs are
// idle, the verdict of admission, and the cell as placement sees it. It is
// derived: documents and reports are replaced and never written to, so what was
// found out holds for as long as it was of the same ones. A step without a Memo
// decides the same, but for the choice between machines that are about as good.
// The zero Memo is empty. A Memo goes with one State and one Observed, and
// belongs to one goroutine at a time.
type Memo struct {
	known     facts.Known
	cell      snapshot.Kept
	idle      idleJobs
	admission *admissionMemo
	combed    map[string]bool // see restore
	served    servedServices
	numbered  numbered
	packed    packed
	emptied   emptied
}

// Audit holds a memo, and what in says is desired, against what is found out from
// nothing, after the writes of the step that filled it were stored. It errs with the
// first difference. Tests and the simulation call it after each step.
func (m *Memo) Audit(in Input) error {
	fresh := &Memo{}
	in.Memo = fresh
	want := in.snapshot()
	in.Memo = m
	got := in.snapshot()
	want = slices.Concat(want, fresh.known.Describe(), fresh.known.DescribeDomains(&m.known))
	got = slices.Concat(got, m.known.Describe(), m.known.DescribeDomains(&m.known))
	for i, line := range got {
		if i >= len(want) || line != want[i] {
			return fmt.Errorf("what is kept of the cell says %q: want %q", line, want[min(i, len(want)-1)])
		}
	}
	if len(got) < len(want) {
		return fmt.Errorf("what is kept of the cell does not say %q", want[len(got)])
	}
	if err := m.known.AuditSaid(in.Observed); err != nil {
		return err
	}
	if err := in.State.Audit(); err != nil {
		return err
	}
	return intent.Audit(in.State, in.desired())
}

// snapshot describes the cell as placement sees it, before anything is decided.
func (in *Input) snapshot() []string {
	p := newPass(in)
	cell := snapshot.New(p.Facts, &in.Memo.cell)
	cell.Reserve(in.Reserved)
	return cell.Snapshot().Describe()
}
