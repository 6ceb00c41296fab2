package image

import (
	"io"
	"sync"
)

// How far a goroutine reads ahead of the one that takes what it read.
const (
	aheadBytes   = 128 << 10
	aheadBuffers = 4
)

// ahead reads from another reader in a goroutine of its own, so that what makes the
// bytes and what takes them run at the same time. It must be closed, after which its
// reader is used no more.
type ahead struct {
	full  chan part
	empty chan []byte
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
	cur   part
	rest  []byte
}

type part struct {
	b   []byte
	err error
}

func newAhead(r io.Reader) *ahead {
	a := &ahead{
		full: make(chan part, aheadBuffers), empty: make(chan []byte, aheadBuffers),
		stop: make(chan struct{}), ended: make(chan struct{}),
	}
	for range aheadBuffers {
		a.empty <- make([]byte, aheadBytes)
	}
	go a.run(r)
	return a
}

func (a *ahead) run(r io.Reader) {
	defer close(a.ended)
	for {
		var b []byte
		select {
		case b = <-a.empty:
		case <-a.stop:
			return
		}
		n, err := 0, error(nil)
		for n < len(b) && err == nil {
			var m int
			m, err = r.Read(b[n:])
			n += m
		}
		a.full <- part{b[:n], err} // there is room for all buffers
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.cur.err != nil {
			return 0, a.cur.err
		}
		if a.cur.b != nil {
			a.empty <- a.cur.b[:cap(a.cur.b)]
		}
		a.cur = <-a.full
		a.rest = a.cur.b
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// close waits until the goroutine has ended: as long as one Read of its reader takes.
func (a *ahead) close() {
	a.once.Do(func() { close(a.stop) })
	<-a.ended
}
