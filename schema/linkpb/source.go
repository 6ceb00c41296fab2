package linkpb

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// EncodeQuestion returns the message of a question.
func EncodeQuestion(q *schema.SourceQuestion) *SourcesRequest {
	return &SourcesRequest{Machine: q.Machine, Content: string(q.Content), Without: q.Without, Stalled: q.Stalled, Ended: q.Ended}
}

// DecodeQuestion returns the question of a message. It errs when more machines are named than
// a question does.
func DecodeQuestion(m *SourcesRequest) (schema.SourceQuestion, error) {
	if n := len(m.GetWithout()); n > schema.MaxWithout {
		return schema.SourceQuestion{}, fmt.Errorf("sources: %d machines are named: at most %d are taken", n, schema.MaxWithout)
	}
	return schema.SourceQuestion{
		Machine: m.GetMachine(), Content: schema.Digest(m.GetContent()), Without: m.GetWithout(), Stalled: m.GetStalled(), Ended: m.GetEnded(),
	}, nil
}

// EncodeAnswer returns the message of an answer.
func EncodeAnswer(a *schema.SourceAnswer) *SourcesResponse {
	m := &SourcesResponse{Registry: a.Registry}
	for _, p := range a.Peers {
		m.Peers = append(m.Peers, &SourcePeer{Machine: p.Machine, Address: p.Address, Holds: p.Holds})
	}
	return m
}

// DecodeAnswer returns the answer of a message.
func DecodeAnswer(m *SourcesResponse) schema.SourceAnswer {
	a := schema.SourceAnswer{Registry: m.GetRegistry()}
	for _, p := range m.GetPeers() {
		a.Peers = append(a.Peers, schema.SourcePeer{Machine: p.GetMachine(), Address: p.GetAddress(), Holds: p.GetHolds()})
	}
	return a
}
