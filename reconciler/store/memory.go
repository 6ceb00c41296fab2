package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Memory is a store without a disk, for tests and the simulation. It outlives
// the Stores that are opened on it, as a data directory does; a later one that
// campaigns fences the earlier. It starts no goroutine and is deterministic.
type Memory struct {
	mu   sync.Mutex // guards all below
	rev  int64
	keys map[string]memoryValue
	txns int
	hook func(n int) Fate
}

type memoryValue struct {
	rev   int64
	value []byte
}

// Fate is what becomes of one transaction.
type Fate int

// The fates. Refused and Forgotten look the same to the caller, who gets
// ErrInjected, as when a master dies or loses its store at that moment.
const (
	Taken     Fate = iota // takes effect
	Refused               // has no effect, and an error
	Forgotten             // takes effect, and an error
)

// ErrInjected is the error of a transaction that the hook made fail.
var ErrInjected = errors.New("injected failure")

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{keys: map[string]memoryValue{}}
}

// Open returns a new Store on the memory, which takes the cell of the first.
func (m *Memory) Open(cell string) (*Store, error) {
	id := identity{Cell: cell, ID: "memory-" + cell, Format: layout}
	s, err := open(context.Background(), (*memoryBackend)(m), id, "memory")
	if err != nil {
		return nil, fmt.Errorf("open memory: %w", err)
	}
	return s, nil
}

// Hook has f decide the fate of every transaction from now on; n counts them
// from 1, over all Stores and since the memory was made, Campaign, Resign and
// pieces included. nil takes all. f must not call into the memory.
func (m *Memory) Hook(f func(n int) Fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = f
}

// Transactions returns how many there were.
func (m *Memory) Transactions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.txns
}

// memoryBackend keeps the backend's methods out of Memory's.
type memoryBackend Memory

func (m *memoryBackend) txn(ctx context.Context, c condition, ops []op) (int64, bool, error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.txns++
	fate := Taken
	if m.hook != nil {
		fate = m.hook(m.txns)
	}
	if fate == Refused {
		return 0, false, fmt.Errorf("transaction %d: %w", m.txns, ErrInjected)
	}
	held := c.key == "" || m.keys[c.key].rev == c.rev
	if held {
		m.rev++
		for _, o := range ops {
			if o.value == nil {
				delete(m.keys, o.key)
				continue
			}
			m.keys[o.key] = memoryValue{m.rev, slices.Clone(o.value)}
		}
	}
	if fate == Forgotten {
		return 0, false, fmt.Errorf("transaction %d: %w", m.txns, ErrInjected)
	}
	return m.rev, held, nil
}

func (m *memoryBackend) scan(ctx context.Context, prefix string, yield func(string, []byte) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	found := maps.Clone(m.keys)
	m.mu.Unlock()
	maps.DeleteFunc(found, func(key string, _ memoryValue) bool { return !strings.HasPrefix(key, prefix) })
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if err := yield(key, slices.Clone(found[key].value)); err != nil {
			return err
		}
	}
	return nil
}

// campaign takes the key over at once. The term does not end by itself.
func (m *memoryBackend) campaign(ctx context.Context, key string, value []byte) (int64, <-chan struct{}, error) {
	rev, _, err := m.txn(ctx, condition{}, []op{{key, value}})
	return rev, nil, err
}

// close releases nothing: the memory stays for the next Store.
func (m *memoryBackend) close() error { return nil }
