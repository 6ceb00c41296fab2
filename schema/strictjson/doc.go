// Package strictjson reads JSON that says what a Go type has a place for, and nothing else, in half
// of the time that package encoding/json takes.
//
// In: a document, and a pointer to what it is read into. Out: what encoding/json would read, or an
// error where the document has anything more than that: then encoding/json is to be
// asked. Safe for concurrent use. It never reads something else than encoding/json does, and
// never writes JSON: canonical forms, of which there are digests, stay those of encoding/json.
package strictjson
