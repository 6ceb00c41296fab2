package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// AsideMark is in the names of what was moved aside.
const AsideMark = ".damaged-"

// asides bounds how often a name can be cleared of what is no file.
const asides = 100

// Aside moves what is at name, if it is no regular file, to a name beside it: a file
// is written there next, and nothing that somebody has made is removed.
func Aside(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() {
		return nil
	}
	return MoveAside(name)
}

// MoveAside moves what is at name, which is there, to a name beside it.
func MoveAside(name string) error {
	for i := range asides {
		to := fmt.Sprintf("%s%s%d", name, AsideMark, i)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(name, to)
		}
	}
	return fmt.Errorf("%s is in the way, and so are %d moved aside before", name, asides)
}
