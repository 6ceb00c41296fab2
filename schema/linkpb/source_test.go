package linkpb

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/schema"
)

// What is asked and answered about sources arrives as it was sent, and too much of it is refused.
func TestSources(t *testing.T) {
	t.Parallel()
	q := schema.SourceQuestion{
		Machine: "m", Content: "sha256:c", Without: []string{"n"}, Stalled: true, Ended: true, Pull: 1 << 63, Turn: 2,
		Fetches: []schema.SourceFetch{{Blob: "sha256:a", Begun: true, Bytes: 1 << 40}, {Blob: "sha256:b"}},
		Have:    []schema.Digest{"sha256:d"}, Received: 1 << 40, Whole: true,
	}
	sent, err := proto.Marshal(EncodeQuestion(&q))
	if err != nil {
		t.Fatal(err)
	}
	var m SourcesRequest
	if err := proto.Unmarshal(sent, &m); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeQuestion(&m)
	if diff := cmp.Diff(q, got); diff != "" || err != nil {
		t.Errorf("question (-sent +received):\n%s%v", diff, err)
	}
	a := schema.SourceAnswer{Registry: true, Peers: []schema.SourcePeer{{Machine: "n", Address: "h:1", Holds: true}}, ByBlob: true, Fetch: []schema.Digest{"sha256:a"}}
	if diff := cmp.Diff(a, DecodeAnswer(EncodeAnswer(&a))); diff != "" {
		t.Errorf("answer (-sent +received):\n%s", diff)
	}
	for _, many := range []schema.SourceQuestion{{Fetches: make([]schema.SourceFetch, schema.MaxFetches+1)}, {Have: make([]schema.Digest, schema.MaxFetches+1)}, {Without: make([]string, schema.MaxWithout+1)}, {Content: "c", Without: []string{strings.Repeat("m", maxWord+1)}}} {
		if _, err := DecodeQuestion(EncodeQuestion(&many)); err == nil {
			t.Errorf("%d, %d, %d of them are taken", len(many.Fetches), len(many.Have), len(many.Without))
		}
	}
	long := schema.Digest(strings.Repeat("a", maxWord+1))
	for _, wrong := range []schema.SourceQuestion{{Content: long}, {Have: []schema.Digest{long}}, {Have: []schema.Digest{""}}, {Fetches: []schema.SourceFetch{{Blob: long}}}, {Fetches: []schema.SourceFetch{{}}}} {
		if _, err := DecodeQuestion(EncodeQuestion(&wrong)); err == nil {
			t.Errorf("%.50v is taken", wrong)
		}
	}
}
