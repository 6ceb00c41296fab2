package linkpb

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
)

// EncodeQuestion returns the message of a question.
func EncodeQuestion(q *schema.SourceQuestion) *SourcesRequest {
	m := &SourcesRequest{
		Machine: q.Machine, Content: string(q.Content), Without: q.Without, Stalled: q.Stalled, Ended: q.Ended,
		Pull: q.Pull, Turn: q.Turn, Have: words[string](q.Have), Received: q.Received, Whole: q.Whole,
	}
	for _, f := range q.Fetches {
		m.Fetches = append(m.Fetches, &SourceFetch{Blob: string(f.Blob), Begun: f.Begun, Bytes: f.Bytes})
	}
	return m
}

// DecodeQuestion returns the question of a message. It errs when more machines or blobs are named than
// a question does, and when a name is too long, or a digest none by its length.
func DecodeQuestion(m *SourcesRequest) (schema.SourceQuestion, error) {
	if n := len(m.GetWithout()); n > schema.MaxWithout {
		return schema.SourceQuestion{}, fmt.Errorf("sources: %d machines are named: at most %d are taken", n, schema.MaxWithout)
	}
	if n := max(len(m.GetFetches()), len(m.GetHave())); n > schema.MaxFetches {
		return schema.SourceQuestion{}, fmt.Errorf("sources: %d blobs are named: at most %d are taken", n, schema.MaxFetches)
	}
	for _, machine := range m.GetWithout() {
		if err := checkNames(named{"the name of a machine", machine}); err != nil {
			return schema.SourceQuestion{}, fmt.Errorf("sources: %w", err)
		}
	}
	q := schema.SourceQuestion{
		Machine: m.GetMachine(), Content: schema.Digest(m.GetContent()), Without: m.GetWithout(), Stalled: m.GetStalled(), Ended: m.GetEnded(),
		Pull: m.GetPull(), Turn: m.GetTurn(), Have: words[schema.Digest](m.GetHave()), Received: m.GetReceived(), Whole: m.GetWhole(),
	}
	for _, f := range m.GetFetches() {
		q.Fetches = append(q.Fetches, schema.SourceFetch{Blob: schema.Digest(f.GetBlob()), Begun: f.GetBegun(), Bytes: f.GetBytes()})
	}
	blobs := slices.Clone(q.Have)
	for _, f := range q.Fetches {
		blobs = append(blobs, f.Blob)
	}
	if len(q.Content) > maxWord || slices.ContainsFunc(blobs, func(d schema.Digest) bool { return len(d) == 0 || len(d) > maxWord }) {
		return schema.SourceQuestion{}, fmt.Errorf("sources: a digest is empty, or has more than %d bytes", maxWord)
	}
	return q, nil
}

// words returns strings of another type.
func words[To, From ~string](all []From) (out []To) {
	for _, s := range all {
		out = append(out, To(s))
	}
	return out
}

// EncodeAnswer returns the message of an answer.
func EncodeAnswer(a *schema.SourceAnswer) *SourcesResponse {
	m := &SourcesResponse{Registry: a.Registry, ByBlob: a.ByBlob, Fetch: words[string](a.Fetch)}
	for _, p := range a.Peers {
		m.Peers = append(m.Peers, &SourcePeer{Machine: p.Machine, Address: p.Address, Holds: p.Holds})
	}
	return m
}

// DecodeAnswer returns the answer of a message.
func DecodeAnswer(m *SourcesResponse) schema.SourceAnswer {
	a := schema.SourceAnswer{Registry: m.GetRegistry(), ByBlob: m.GetByBlob(), Fetch: words[schema.Digest](m.GetFetch())}
	for _, p := range m.GetPeers() {
		a.Peers = append(a.Peers, schema.SourcePeer{Machine: p.GetMachine(), Address: p.GetAddress(), Holds: p.GetHolds()})
	}
	return a
}
