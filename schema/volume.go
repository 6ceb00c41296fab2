package schema

import (
	"slices"
	"strings"
)

// TaskPackage is an archive that a task finds unpacked at a path of its own, read-only. A
// machine has it once, for all tasks that ask for the same bytes.
type TaskPackage struct {
	Name string `json:"name"`
	// Digest is of the archive's file, as it is downloaded.
	Digest Digest `json:"digest"`
	// From is https://HOST/PATH, or oci://REGISTRY/NAME, a repository that has it as a blob.
	From string `json:"from"`
	Path string `json:"path"`
}

// TaskVolume is a directory that a task finds at a path of its own, beside its work
// directory: memory, or a directory of the machine.
type TaskVolume struct {
	Path string `json:"path"`
	// TmpBytes is the size of one in memory, which counts as the task's and is empty
	// at each start; 0: it is not in memory.
	TmpBytes int64 `json:"tmpBytes,omitempty"`
	// Shared is the name of a directory of the machine; "": it is none.
	Shared   string `json:"shared,omitempty"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// CellVolume is what a cell says of a directory that its machines share with tasks by a name.
type CellVolume struct {
	// ReadOnly says that jobs must not write to it: each says TaskVolume.ReadOnly.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// The attributes of machines that can give tasks what is mounted at paths of their own;
// each is "true" or absent.
const (
	HasPackages = "packages"
	HasVolumes  = "volumes"
)

const volumePrefix = "volume."

// VolumeAttribute returns the attribute that is "true" of a machine with the shared volume
// called name, and the one of those whose tasks may write to it.
func VolumeAttribute(name string) (has, writable string) {
	has = volumePrefix + name
	return has, has + ".writable"
}

// SharedVolumes returns the shared volumes of a machine with these attributes, sorted.
func SharedVolumes(attributes map[string]string) []string {
	var out []string
	for a, value := range attributes {
		if name, ok := strings.CutPrefix(a, volumePrefix); ok && value == "true" && !strings.Contains(name, ".") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// archiveScheme is in each Source of a package, and in no reference of an image.
const archiveScheme = "://"

// Source names the bytes of the package, and where they come from: From@Digest.
func (p *TaskPackage) Source() string { return p.From + "@" + string(p.Digest) }

// SplitSource returns from where an archive comes, and its digest; false if name is not
// the Source of a package.
func SplitSource(name string) (from string, digest Digest, ok bool) {
	i := strings.LastIndexByte(name, '@')
	if i < 0 || !strings.Contains(name, archiveScheme) {
		return "", "", false
	}
	return name[:i], Digest(name[i+1:]), true
}

// Content returns the digest of what a name of Brings stands for, by which machines say
// that they hold it; "" if it has none.
func Content(name string) Digest {
	if i := strings.LastIndexByte(name, '@'); i >= 0 {
		return Digest(name[i+1:])
	}
	return ""
}
