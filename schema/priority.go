package schema

// MaxPriority is the highest priority; the lowest is 0 (Borg §2.5 has bands of
// non-overlapping small integers; the numbers are ours).
const MaxPriority = 399

// PriorityNamed stands, in the objects of a Package, for the number of a
// declared priority that the job or alloc set has by name, or of the alloc set
// that the job names: a Reference of the package holds the name. No job that a cell admits has it.
const PriorityNamed Priority = -1

// Band is a range of priorities that share their rules of quota and preemption.
type Band string

// The bands, lowest first.
const (
	BandFree       Band = "free"       // 0–99
	BandBatch      Band = "batch"      // 100–199
	BandProduction Band = "production" // 200–299
	BandMonitoring Band = "monitoring" // 300–399
)

// Bands lists the bands, lowest first.
func Bands() []Band { return []Band{BandFree, BandBatch, BandProduction, BandMonitoring} }

// Priority is a number from 0 to MaxPriority; higher is more important.
type Priority int

// Band returns the band that p lies in.
func (p Priority) Band() Band {
	i := min(max(int(p)/100, 0), 3)
	return Bands()[i]
}

// Prod reports whether p lies in production or monitoring: their quota is a promise, and what
// they get is theirs by its limit (Borg §2.5).
func (p Priority) Prod() bool { return p >= 200 }

// PreemptsBelow returns the priority below which all tasks may be preempted for one of p: p, but
// within production, and within monitoring, none is preempted for another (Borg §2.5).
func (p Priority) PreemptsBelow() Priority {
	if !p.Prod() {
		return p
	}
	floor, _ := p.Band().Floor()
	return floor
}

// Preempts reports whether tasks of a priority may be preempted for one of p.
func (p Priority) Preempts(other Priority) bool { return other < p.PreemptsBelow() }

// Floor returns the lowest priority of the band, which is what the band's name
// means where a priority is named; false if b is no band.
func (b Band) Floor() (Priority, bool) {
	for i, k := range Bands() {
		if k == b {
			return Priority(i * 100), true
		}
	}
	return 0, false
}
