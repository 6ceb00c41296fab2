package schema

import "bytes"

// Embeds reports whether a CUE file may embed other files: whether it has @embed anywhere
// but in a line that is a comment.
func Embeds(cue []byte) bool {
	attribute := []byte("@embed")
	for {
		at := bytes.Index(cue, attribute)
		if at < 0 {
			return false
		}
		line := cue[bytes.LastIndexByte(cue[:at], '\n')+1 : at]
		if !bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("//")) {
			return true
		}
		end := bytes.IndexByte(cue[at:], '\n')
		if end < 0 {
			return false
		}
		cue = cue[at+end:]
	}
}
