package schema

// Resources is an amount of each resource that muster counts. Fields are never
// negative in declared data; a difference of two may be.
type Resources struct {
	// CPUMilli is thousandths of a core.
	CPUMilli int64 `json:"cpuMilli"`
	// RAMBytes is memory in bytes.
	RAMBytes int64 `json:"ramBytes"`
	// DiskBytes is space on the machine's local file system, in bytes.
	DiskBytes int64 `json:"diskBytes"`
}

// Dimension names one field of Resources, by its JSON name.
type Dimension string

// The dimensions, in the order in which they are reported.
const (
	CPUMilli  Dimension = "cpuMilli"
	RAMBytes  Dimension = "ramBytes"
	DiskBytes Dimension = "diskBytes"
)

// Dimensions lists all dimensions in the order in which they are reported.
func Dimensions() []Dimension { return []Dimension{CPUMilli, RAMBytes, DiskBytes} }

// Of returns the amount in dimension d, 0 for an unknown one.
func (r Resources) Of(d Dimension) int64 {
	switch d {
	case CPUMilli:
		return r.CPUMilli
	case RAMBytes:
		return r.RAMBytes
	case DiskBytes:
		return r.DiskBytes
	}
	return 0
}

// Add returns r + o.
func (r Resources) Add(o Resources) Resources {
	return Resources{r.CPUMilli + o.CPUMilli, r.RAMBytes + o.RAMBytes, r.DiskBytes + o.DiskBytes}
}

// Sub returns r - o; fields may become negative.
func (r Resources) Sub(o Resources) Resources {
	return Resources{r.CPUMilli - o.CPUMilli, r.RAMBytes - o.RAMBytes, r.DiskBytes - o.DiskBytes}
}

// Times returns r counted n times.
func (r Resources) Times(n int) Resources {
	k := int64(n)
	return Resources{r.CPUMilli * k, r.RAMBytes * k, r.DiskBytes * k}
}

// Fits reports whether r is at most o in every dimension.
func (r Resources) Fits(o Resources) bool {
	return r.CPUMilli <= o.CPUMilli && r.RAMBytes <= o.RAMBytes && r.DiskBytes <= o.DiskBytes
}
