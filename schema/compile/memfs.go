package compile

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/vendored"
)

// memFS is the file system that a child sees: the files it was sent, where elsewhere says.
type memFS struct {
	files map[string][]byte
	dirs  map[string][]fs.DirEntry // sorted by name
}

func newMemFS(files map[string][]byte) *memFS {
	m := &memFS{files: make(map[string][]byte, len(files)), dirs: map[string][]fs.DirEntry{".": nil}}
	for _, from := range slices.Sorted(maps.Keys(files)) {
		name := elsewhere(from)
		if !fs.ValidPath(name) {
			continue // nothing can open it
		}
		m.files[name] = files[from]
		m.add(memInfo{name: path.Base(name), size: len(files[from])}, path.Dir(name))
	}
	for _, entries := range m.dirs {
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return bytes.Compare([]byte(a.Name()), []byte(b.Name())) })
	}
	return m
}

func (m *memFS) add(info memInfo, dir string) {
	if _, ok := m.dirs[dir]; !ok {
		m.dirs[dir] = nil
		m.add(memInfo{name: path.Base(dir), dir: true}, path.Dir(dir))
	}
	m.dirs[dir] = append(m.dirs[dir], fs.FileInfoToDirEntry(info))
}

// Open opens a file or a directory.
func (m *memFS) Open(name string) (fs.File, error) {
	info, err := m.Stat(name)
	if err != nil {
		return nil, err
	}
	return &memFile{info: info, Reader: bytes.NewReader(m.files[name]), entries: m.dirs[name]}, nil
}

// Stat describes a file or a directory.
func (m *memFS) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if b, ok := m.files[name]; ok {
		return memInfo{name: path.Base(name), size: len(b)}, nil
	}
	if _, ok := m.dirs[name]; ok {
		return memInfo{name: path.Base(name), dir: true}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// ReadDir lists a directory, sorted by name.
func (m *memFS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, ok := m.dirs[name]
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(entries), nil
}

// memFile is an open file or directory of a memFS.
type memFile struct {
	info fs.FileInfo
	*bytes.Reader
	entries []fs.DirEntry
}

// Stat describes the file.
func (f *memFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close does nothing.
func (f *memFile) Close() error { return nil }

// ReadDir returns the next n entries, all that are left if n <= 0.
func (f *memFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(f.entries)
	} else if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	out := slices.Clone(f.entries[:n])
	f.entries = f.entries[n:]
	return out, nil
}

// memInfo describes a file of a memFS.
type memInfo struct {
	name string
	size int
	dir  bool
}

// Name returns the last element of the path.
func (i memInfo) Name() string { return i.name }

// Size returns the length in bytes, 0 for a directory.
func (i memInfo) Size() int64 { return int64(i.size) }

// ModTime returns the zero time: the same commit gives the same bytes.
func (i memInfo) ModTime() time.Time { return time.Time{} }

// IsDir reports whether it is a directory.
func (i memInfo) IsDir() bool { return i.dir }

// Sys returns nil.
func (i memInfo) Sys() any { return nil }

// Mode returns that of a file or directory that can only be read.
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

// aside is where the file system of a child has the vendored modules: a name that no
// directory of a repository can have.
const aside = "|pkg"

// elsewhere returns where a file of a repository is in the file system of a child.
func elsewhere(name string) string {
	if !inPkg(name) {
		return name
	}
	return aside + strings.TrimPrefix(name, vendored.Dir)
}

// inRepository returns the name of a file that elsewhere gave, as positions have it.
func inRepository(name string) string {
	if rest, ok := strings.CutPrefix(name, "/"+aside+"/"); ok {
		return "/" + vendored.Dir + "/" + rest
	}
	return name
}
