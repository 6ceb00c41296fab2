package linkpb

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/musterhq/muster/schema"
)

func encodeConditions(conditions []schema.Condition) []*Condition {
	var out []*Condition
	for _, c := range conditions {
		out = append(out, &Condition{Kind: string(c.Kind), Since: encodeTime(c.Since), Message: c.Message})
	}
	return out
}

// decodeConditions takes kinds that this version does not know: something is
// wrong with the machine all the same.
func decodeConditions(conditions []*Condition) ([]schema.Condition, error) {
	var out []schema.Condition
	for _, m := range conditions {
		if err := schema.CheckName(m.GetKind()); err != nil {
			return nil, fmt.Errorf("condition: %w", err)
		}
		since, err := decodeTime(m.GetSince())
		if err != nil {
			return nil, fmt.Errorf("condition %s: since: %w", m.GetKind(), err)
		}
		out = append(out, schema.Condition{Kind: schema.ConditionKind(m.GetKind()), Since: since, Message: Text(m.GetMessage())})
	}
	return out, nil
}

// EncodeClock returns what lets an agent compare its clock with the master's:
// what its last report said of its clock, the time since that report came, and
// the master's clock; nil if the report said nothing.
func EncodeClock(last *Report, held time.Duration, now time.Time) *MasterClock {
	if last.GetSent() == nil {
		return nil
	}
	return &MasterClock{ReportSent: last.GetSent(), Held: durationpb.New(held), Now: encodeTime(now)}
}

// Offset returns by how much the master's clock is ahead of the agent's, and
// how far that may be off: half of the time that report and answer spent under
// way (RFC 5905 §8 has the reckoning). sent is when the agent sent the report,
// and received when it got the answer, by its clock. It is false when the
// answer is not to that report, or cannot be.
func (m *MasterClock) Offset(sent, received time.Time) (ahead, within time.Duration, ok bool) {
	said, err := decodeTime(m.GetReportSent())
	if m == nil || err != nil || m.GetHeld().CheckValid() != nil || m.GetNow().CheckValid() != nil || !said.Equal(sent) {
		return 0, 0, false
	}
	within = (received.Sub(sent) - m.GetHeld().AsDuration()) / 2
	if m.GetHeld().AsDuration() < 0 || within < 0 {
		return 0, 0, false // one of the clocks was set in between
	}
	return m.GetNow().AsTime().Add(within).Sub(received), within, true
}
