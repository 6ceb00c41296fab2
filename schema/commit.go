package schema

// Tree is the content of a commit, or of a work tree, as far as it matters to
// compilation. Paths are relative to the root and use slashes.
type Tree struct {
	// Commit is the full hash, or "" for a work tree.
	Commit string
	Files  map[string]File
	// Diagnostics are warnings about what is in the commit and not in Files:
	// symbolic links and submodules, which are not followed.
	Diagnostics []Diagnostic
}

// File is one file of a Tree. Hash identifies Data, so that what did not
// change can be recognised without reading it; equal hashes mean equal data
// within one source of trees.
type File struct {
	Hash string
	Data []byte
}

// Compiled is what the compiler made of a commit: for each directory with
// CUE files either its data or what is wrong with it, sorted by Dir.
type Compiled struct {
	Commit   string
	Packages []CompiledPackage
	// Diagnostics are those of the repository as a whole (no module, bad
	// file names); when one is an error there are no packages.
	Diagnostics []Diagnostic
}

// CompiledPackage is the outcome of one directory. Package is nil when
// Diagnostics holds an error; warnings stand beside data.
type CompiledPackage struct {
	Dir         string
	Package     *Package
	Digest      Digest // of Package
	Diagnostics []Diagnostic
	// Below says that Diagnostics hold for all directories below Dir too: none
	// of them was read.
	Below bool
}

// Head says what the cell's desired data is: flipped in one transaction, after
// all that it refers to is in the store.
type Head struct {
	// Commit is the last commit whose data is in the store ("applied").
	Commit string `json:"commit"`
	// Packages maps a directory to the digest of its Package document. A
	// directory that is stale keeps the digest of its last good data.
	Packages map[string]Digest `json:"packages"`
	// Stale maps a directory whose data of Commit was not taken to the
	// reasons.
	Stale map[string][]Diagnostic `json:"stale,omitempty"`
}
