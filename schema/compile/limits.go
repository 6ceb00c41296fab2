package compile

import "time"

// Limits bound what one package may use, and the last five a commit. The zero value of a field means its
// default. They are part of a package's cache key.
type Limits struct {
	AllocBytes   int           `json:"allocBytes"`   // that are allocated all in all, and collected again or not: default 8 GiB
	CPU          time.Duration `json:"cpu"`          // processor time, default 20 s, for what allocates little
	Wall         time.Duration `json:"wall"`         // elapsed time, default 5 min: a loaded machine is no fault of a package
	HeapBytes    int           `json:"heapBytes"`    // default 1 GiB
	AddressBytes int           `json:"addressBytes"` // beyond what a child has at its start, default 2 GiB: Go maps more than it uses
	StackBytes   int           `json:"stackBytes"`   // default 128 MiB
	OutputBytes  int           `json:"outputBytes"`  // of data, default 24 MiB
	Objects      int           `json:"objects"`      // default 20,000
	Files        int           `json:"files"`        // that a package depends on, default 10,000
	TreeBytes    int           `json:"treeBytes"`    // of these together, default 64 MiB
	FileBytes    int           `json:"fileBytes"`    // of a CUE file, default 4 MiB
	Packages     int           `json:"packages"`     // in a commit, default 10,000
	CommitBytes  int           `json:"commitBytes"`  // of data of all packages of a commit, default 256 MiB
	OwnerBytes   int           `json:"ownerBytes"`   // of data of all packages of one tenant in a commit, default 64 MiB
	OwnerAllocs  int           `json:"ownerAllocs"`  // that the evaluation of all packages of one tenant in a commit allocates, default 256 GiB
	OwnerCPU     time.Duration `json:"ownerCPU"`     // processor time of it, default 10 min, for what allocates little
}

// withDefaults returns l with defaults for what is zero.
func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if l.CPU == 0 {
		l.CPU = 20 * time.Second
	}
	if l.OwnerCPU == 0 {
		l.OwnerCPU = 10 * time.Minute
	}
	if l.Wall == 0 {
		l.Wall = 5 * time.Minute
	}
	set(&l.AllocBytes, 8<<30)
	set(&l.HeapBytes, 1<<30)
	set(&l.AddressBytes, 2<<30)
	set(&l.StackBytes, 128<<20)
	set(&l.OutputBytes, 24<<20)
	set(&l.Objects, 20_000)
	set(&l.Files, 10_000)
	set(&l.TreeBytes, 64<<20)
	set(&l.FileBytes, 4<<20)
	set(&l.Packages, 10_000)
	set(&l.CommitBytes, 256<<20)
	set(&l.OwnerBytes, 64<<20)
	set(&l.OwnerAllocs, 256<<30)
	return l
}

// frameBytes is the largest answer of a child: JSON of JSON, and diagnostics.
func (l Limits) frameBytes() int { return 2*l.OutputBytes + 16<<20 }

// maxParsed is the largest file, in bytes, that is parsed whole outside of a child: how deep
// the parser goes is bounded by nothing else, and ends the process.
const maxParsed = 16 << 10
