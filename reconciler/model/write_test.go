package model_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/model"
)

func write(key, value string) model.Write {
	return model.Write{Key: key, Value: []byte(value)}
}

func TestBatches(t *testing.T) {
	t.Parallel()
	big := model.Write{Key: "big", Value: make([]byte, 3<<20)}
	tests := []struct {
		name string
		in   []model.Write
		want [][]model.Write
	}{
		{"nothing", nil, nil},
		{"one", []model.Write{write("a", "1")}, [][]model.Write{{write("a", "1")}}},
		{
			"the last write of a key stays",
			[]model.Write{write("a", "1"), write("b", "1"), write("a", "2"), {Key: "b"}},
			[][]model.Write{{write("a", "2"), {Key: "b"}}},
		},
		{
			"what is over the limit is alone",
			[]model.Write{write("a", "1"), big, write("b", "1")},
			[][]model.Write{{write("a", "1")}, {big}, {write("b", "1")}},
		},
		{
			"a key comes again after its batch was closed",
			[]model.Write{write("a", "1"), big, write("a", "2")},
			[][]model.Write{{write("a", "1")}, {big}, {write("a", "2")}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, model.Batches(tt.in), cmp.Comparer(same)); diff != "" {
				t.Errorf("Batches: (-want +got)\n%s", diff)
			}
		})
	}
}

func TestBatchesCountOperations(t *testing.T) {
	t.Parallel()
	var in []model.Write
	for i := range 300 {
		in = append(in, write(fmt.Sprint(i), "x"))
	}
	var sizes []int
	for _, b := range model.Batches(in) {
		sizes = append(sizes, len(b))
	}
	if diff := cmp.Diff([]int{128, 128, 44}, sizes); diff != "" {
		t.Errorf("batch sizes: (-want +got)\n%s", diff)
	}
}

var zeros = make([]byte, 2_000_000)

// Every prefix of batches leaves a state that some prefix of the writes left,
// and no batch is over a limit.
func TestBatchesKeepOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 400).Draw(t, "n")
		in := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Write {
			w := model.Write{Key: fmt.Sprint("k", rapid.IntRange(0, 150).Draw(t, "key"))}
			if rapid.Bool().Draw(t, "put") {
				w.Value = zeros[:rapid.SampledFrom([]int{0, 1, 10, 400_000, 2_000_000}).Draw(t, "size")]
			}
			return w
		}), n, n).Draw(t, "writes")
		state, ref, next := map[string]int{}, map[string]int{}, 0
		for i, batch := range model.Batches(in) {
			bytes, keys := 0, map[string]bool{}
			for _, w := range batch {
				if keys[w.Key] {
					t.Fatalf("batch %d holds %s twice", i, w.Key)
				}
				keys[w.Key] = true
				bytes += len(w.Key) + len(w.Value)
				apply(state, w)
			}
			if len(batch) > 128 || bytes > 1<<20 && len(batch) > 1 {
				t.Fatalf("batch %d: %d operations, %d bytes", i, len(batch), bytes)
			}
			for next < len(in) && !maps.Equal(state, ref) {
				apply(ref, in[next])
				next++
			}
			if !maps.Equal(state, ref) {
				t.Fatalf("after batch %d the state is not that of any prefix", i)
			}
		}
		for ; next < len(in); next++ {
			apply(ref, in[next])
		}
		if diff := cmp.Diff(ref, state); diff != "" {
			t.Fatalf("after all batches: (-want +got)\n%s", diff)
		}
	})
}

// same distinguishes a deletion from an empty document.
func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}

func apply(state map[string]int, w model.Write) {
	if w.Value == nil {
		delete(state, w.Key)
		return
	}
	state[w.Key] = len(w.Value)
}
