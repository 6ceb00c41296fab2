package linkpb

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestUnlisted(t *testing.T) {
	t.Parallel()
	list := []schema.UnlistedTask{{Task: "u/web/0", Generation: 7}, {Task: "u/web/1"}}
	if got, err := DecodeUnlisted(EncodeUnlisted(list)); err != nil || !slices.Equal(got, list) {
		t.Errorf("%v, error %v", got, err)
	}
	got, err := DecodeUnlisted(&Unlisted{Tasks: []string{"u/web/0"}})
	if err != nil || !slices.Equal(got, []schema.UnlistedTask{{Task: "u/web/0"}}) {
		t.Errorf("of a master of an earlier release: %v, error %v", got, err)
	}
	if _, err := DecodeUnlisted(&Unlisted{Tasks: []string{"u/web/0", "u/web/1"}, Generations: []uint64{7}}); err == nil {
		t.Error("a task without a generation among others that have one was read")
	}
}
