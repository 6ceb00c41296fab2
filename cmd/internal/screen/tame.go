package screen

import (
	"bytes"
	"io"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Tame writes to a terminal what somebody else has written, such as a task: text and
// colours as they are. Of all other control sequences the terminal sees the signs: they
// could change its title, its keys or its clipboard, or have it answer as if its user
// typed.
type Tame struct {
	Out  io.Writer
	rest []byte // the beginning of a sequence or a rune
}

// maxColour is the longest sequence that sets colours, in bytes.
const maxColour = 64

// Write writes all of p but what the next Write may complete. The error is that of Out.
func (t *Tame) Write(p []byte) (int, error) {
	var out bytes.Buffer
	in := slices.Concat(t.rest, p)
	for len(in) > 0 {
		n, partly := colour(in)
		if n == 0 && !partly {
			if partly = !utf8.FullRune(in); !partly {
				n = tameRune(&out, in)
			}
		} else {
			out.Write(in[:n])
		}
		if partly {
			break
		}
		in = in[n:]
	}
	t.rest = bytes.Clone(in)
	_, err := t.Out.Write(out.Bytes())
	return len(p), err
}

// colour returns the length of the sequence at the beginning of b that sets colours, 0 if
// there is none; partly says that there may be one when more has come.
func colour(b []byte) (n int, partly bool) {
	const begin = "\x1b["
	if len(b) < len(begin) {
		return 0, b[0] == begin[0]
	}
	if string(b[:len(begin)]) != begin {
		return 0, false
	}
	for i, c := range b[len(begin):min(len(b), maxColour)] {
		switch {
		case c == 'm':
			return len(begin) + i + 1, false
		case (c < '0' || c > '9') && c != ';' && c != ':':
			return 0, false
		}
	}
	return 0, len(b) < maxColour
}

// joiner is between the parts of some signs.
const joiner = '\u200d'

// tameRune writes the rune at the beginning of b so that it is seen, and returns its length.
func tameRune(out *bytes.Buffer, b []byte) int {
	r, n := utf8.DecodeRune(b)
	switch {
	case r == utf8.RuneError:
		out.WriteRune(r)
	case r == '\n', r == '\t', r == '\r', r == joiner, unicode.IsPrint(r):
		out.Write(b[:n])
	case r < ' ':
		out.WriteByte('^')
		out.WriteByte(byte(r) + '@')
	default:
		out.WriteRune(utf8.RuneError)
	}
	return n
}
