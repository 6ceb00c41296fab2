// Package sops reads files of SOPS whose data key is sealed for age recipients.
//
// In: the text of a file in YAML, JSON, dotenv or the binary form (JSON with the one key
// data), and a function that opens age files. Out: the plaintext of one value or of the
// document (Open), whose it says it is (Owner), and without a key, whether it is such a
// file at all (Inspect). Each value is authenticated with its path, and all together by
// the MAC of the file, which is always checked.
//
// The format is read here, and not by the library of SOPS, since that links the clients
// of five clouds: docs/decisions/0027 has what it would cost. Left out, each with an
// error that says so: recipients other than age, keys that are split among groups, rules
// by comments, several YAML documents, and INI.
//
// The package does no I/O, and no error has a part of a plaintext. All functions may be
// called from any goroutine.
package sops
