package relay

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
	"github.com/musterhq/muster/schema/linkpb"
)

func encodeLink(c *schema.Connection) *linkpb.Connection {
	m := &linkpb.Connection{From: c.From, Answers: c.Answers, Life: c.Life, Key: c.Key}
	if !c.Issued.IsZero() {
		m.Issued = timestamppb.New(c.Issued)
	}
	return m
}

func decodeLink(m *linkpb.Connection) schema.Connection {
	c := schema.Connection{From: m.GetFrom(), Answers: m.GetAnswers(), Life: m.GetLife(), Key: m.GetKey()}
	if m.GetIssued() != nil {
		c.Issued = m.GetIssued().AsTime()
	}
	return c
}

func encodeUpdate(w *model.SessionUpdate) (*linkpb.SessionUpdate, error) {
	m := &linkpb.SessionUpdate{Machine: w.Machine, Epoch: w.Epoch, Reported: w.Reported, Left: w.Left}
	if w.Resume != nil {
		m.Resume = encodeLink(w.Resume)
	}
	if w.Report != nil {
		body, digest, err := linkpb.EncodeReport(w.Report)
		if err != nil {
			return nil, err
		}
		m.Report = &linkpb.Report{Body: body, Digest: digest}
	}
	if w.Usage != nil {
		m.Usage = linkpb.EncodeUsage(w.Usage)
	}
	if w.Content != nil {
		m.Content = linkpb.EncodeContent(w.Content)
	}
	return m, nil
}

func decodeUpdate(m *linkpb.SessionUpdate, digests *linkpb.Digests) (model.SessionUpdate, error) {
	w := model.SessionUpdate{Machine: m.GetMachine(), Epoch: m.GetEpoch(), Reported: m.GetReported(), Left: m.GetLeft()}
	if m.GetResume() != nil {
		link := decodeLink(m.GetResume())
		w.Resume = &link
	}
	if m.GetReport() != nil {
		r, err := linkpb.DecodeReport(m.GetReport())
		if err != nil {
			return w, err
		}
		if r.Machine.Name != w.Machine {
			return w, fmt.Errorf("a report of machine %s in an update of %s", r.Machine.Name, w.Machine)
		}
		w.Report = &r
	}
	if m.GetUsage() != nil {
		u, err := linkpb.DecodeUsage(w.Machine, m.GetUsage())
		if err != nil {
			return w, err
		}
		w.Usage = &u
	}
	if m.GetContent() != nil {
		c, err := digests.DecodeContent(m.GetContent())
		if err != nil {
			return w, err
		}
		w.Content = &c
	}
	return w, nil
}

// encodeRefusal says why a machine may not join, so that its agent gets the same answer as
// if it were here.
func encodeRefusal(err error) (*linkpb.Joined, error) {
	m := &linkpb.Joined{Error: err.Error(), Denied: errors.Is(err, identity.ErrRefused)}
	var fault error
	if behind := (*schema.BehindError)(nil); errors.As(err, &behind) {
		m.Behind, fault = json.Marshal(behind)
	}
	if taken := (*schema.TakenError)(nil); errors.As(err, &taken) {
		m.Taken, fault = json.Marshal(taken)
	}
	return m, fault
}

// refusal returns the error of an answer; nil for none.
func refusal(m *linkpb.Joined) error {
	switch {
	case len(m.GetBehind()) > 0:
		behind := new(schema.BehindError)
		if err := json.Unmarshal(m.GetBehind(), behind); err != nil {
			return fmt.Errorf("answer of the leader: %w", err)
		}
		return behind
	case len(m.GetTaken()) > 0:
		taken := new(schema.TakenError)
		if err := json.Unmarshal(m.GetTaken(), taken); err != nil {
			return fmt.Errorf("answer of the leader: %w", err)
		}
		return taken
	case m.GetDenied():
		return fmt.Errorf("%w: %s", identity.ErrRefused, m.GetError())
	case m.GetEpoch() == 0:
		return errors.New(m.GetError())
	}
	return nil
}
