package vendored

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
)

// sumPrefix names the way in which a sum is made.
const sumPrefix = "h1:"

// Sum returns the sum of the files of a module, by their paths in it: the h1 hash of Go's
// golang.org/x/mod/sumdb/dirhash, of the names MODULE@MAJOR/PATH. Nothing but the path and the
// content of the files is in it.
func Sum(module string, files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%x  %s/%s\n", sha256.Sum256(files[name]), module, name)
	}
	return sumPrefix + base64.StdEncoding.EncodeToString(h.Sum(nil))
}
