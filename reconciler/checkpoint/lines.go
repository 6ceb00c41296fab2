package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// blockBytes is how much is read at once.
const blockBytes = 1 << 20

// errTooMuch says that a checkpoint is larger than any.
var errTooMuch = fmt.Errorf("it holds more than %d GiB", maxBytes>>30)

// lineReader cuts what it reads into lines. These stay as they are: nothing is copied but what
// crosses the end of a block, and a cell need not be in memory in one piece, which would be copied
// each time that it grows.
type lineReader struct {
	from  io.Reader
	block []byte // what is read and not returned yet
	err   error  // with which from has ended
	took  int64  // of from
}

// next returns the next line, without its end. It errs with io.EOF at the end, with
// io.ErrUnexpectedEOF if the last line has no end, and as from does.
func (l *lineReader) next() ([]byte, error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(l.block[seen:], '\n'); i >= 0 {
			line := l.block[: seen+i : seen+i]
			l.block = l.block[seen+i+1:]
			return line, nil
		}
		seen = len(l.block)
		switch {
		case l.took > maxBytes:
			return nil, errTooMuch
		case errors.Is(l.err, io.EOF) && seen > 0:
			return nil, io.ErrUnexpectedEOF
		case l.err != nil:
			return nil, l.err
		}
		l.fill()
	}
}

// fill reads on, behind what is there.
func (l *lineReader) fill() {
	if cap(l.block) == len(l.block) {
		l.block = append(make([]byte, 0, max(blockBytes, 2*len(l.block))), l.block...)
	}
	n, err := l.from.Read(l.block[len(l.block):cap(l.block)])
	l.block, l.err, l.took = l.block[:len(l.block)+n], err, l.took+int64(n)
}
