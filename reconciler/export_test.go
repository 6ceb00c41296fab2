package reconciler

import (
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// Described is what a status of m is a function of.
func Described(m *Master, now time.Time) status.DescribeInput { return m.described(now) }

// OnTime has m not be late for its next round at now: between two turns of a test
// nothing happens, however long they are apart.
func OnTime(m *Master, now time.Time) {
	if m.last.Wake.Before(now) {
		m.last.Wake = time.Time{}
	}
}

// EpochOf returns the epoch of a machine's newest connection.
func (m *Master) EpochOf(machine string) uint64 { return m.epochs[machine] }
