package model

// Write is one change of the store: the document at Key becomes Value, or is
// deleted when Value is nil. Keys are relative to the cell's prefix. An empty
// Value that is not nil is a document of no bytes.
type Write struct {
	Key   string
	Value []byte
}

// A batch is one transaction. etcd refuses a 129th operation and requests over
// 1.5 MiB; half a MiB is left for what the store adds around the documents.
const (
	batchOps   = 128
	batchBytes = 1 << 20 // keys and values
)

// Batches cuts writes into transactions and keeps their order: a batch may be
// stored only after those before it, and a crash between two of them leaves a
// prefix. Of several writes of one key within a batch only the last stays. A
// write that is over the limit by itself has a batch of its own; the store
// splits its value.
func Batches(writes []Write) [][]Write {
	var (
		batches [][]Write
		batch   []Write
		bytes   int
		at      = map[string]int{} // key → index in batch
	)
	for _, w := range writes {
		size := len(w.Key) + len(w.Value)
		ops, sum := len(batch)+1, bytes+size
		i, again := at[w.Key]
		if again {
			ops--
			sum -= len(w.Key) + len(batch[i].Value)
		}
		if len(batch) > 0 && (ops > batchOps || sum > batchBytes) {
			batches = append(batches, batch)
			batch, sum, again = nil, size, false
			clear(at)
		}
		if again {
			batch[i].Value = w.Value
		} else {
			at[w.Key] = len(batch)
			batch = append(batch, w)
		}
		bytes = sum
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}
