package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// What is said between qemu and a network block device: the fixed newstyle of the NBD protocol.
const (
	nbdMagic      = 0x4e42444d41474943 // NBDMAGIC
	nbdOption     = 0x49484156454f5054 // IHAVEOPT
	nbdOptionSays = 0x3e889045565a9
	nbdRequest    = 0x25609513
	nbdReply      = 0x67446698

	nbdNewstyle    = 1 | 2 // and no zeroes after the export
	nbdGo          = 7
	nbdInfo        = 3
	nbdAck         = 1
	nbdUnsupported = 1<<31 + 1
	nbdFlushes     = 1 | 4 // has flags, and takes flushes; no FUA, for which a flush follows

	nbdRead  = 0
	nbdWrite = 1
	nbdEnd   = 2
	nbdFlush = 3
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 4096

// write is one that a disk was asked for; a flush has no data.
type write struct {
	at   int64
	data []byte
}

// powerDisk is the disk of a virtual machine, with a cache that forgets: when the power is cut, what
// was written before the last flush is there, and of each sector that was written later it is left to
// chance. It is reached by a socket.
type powerDisk struct {
	t      *testing.T
	listen net.Listener

	mu    sync.Mutex
	now   []byte  // what the machine reads
	base  []byte  // what was there when the log began; nil: it has not
	log   []write // since then
	left  int     // flushes until the power is cut; 0: it is not
	ended chan struct{}
}

func newPowerDisk(t *testing.T, socket string, content []byte) *powerDisk {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &powerDisk{t: t, listen: l, now: content}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if err := d.serve(c); err != nil && !errors.Is(err, io.EOF) {
				t.Log("disk:", err)
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return d
}

// arm has the log begin, and returns a channel that is closed at a flush so many from now, which is
// not answered any more, nor is what comes after.
func (d *powerDisk) arm(flushes int) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base, d.log, d.left, d.ended = append([]byte(nil), d.now...), nil, flushes, make(chan struct{})
	return d.ended
}

// recorded returns what was on the disk when it was armed, and what was written since.
func (d *powerDisk) recorded() ([]byte, []write) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.base, d.log
}

// lose has the next machine find what a power cut leaves, and takes requests again.
func (d *powerDisk) lose(chance *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.left, d.ended = afterCut(d.base, d.log, chance), 0, nil
}

// afterCut returns what is on a disk that had base after a log and a power cut.
func afterCut(base []byte, log []write, chance *rand.Rand) []byte {
	out := append([]byte(nil), base...)
	last := 0
	for i, w := range log {
		if w.data == nil {
			last = i
		}
	}
	for i, w := range log {
		for n := 0; n < len(w.data); n += sector {
			if i < last || chance.IntN(2) == 0 {
				copy(out[w.at+int64(n):], w.data[n:min(n+sector, len(w.data))])
			}
		}
	}
	return out
}

// serve serves one machine.
func (d *powerDisk) serve(c net.Conn) error {
	if err := d.greet(c); err != nil {
		return err
	}
	for {
		var q struct {
			Magic       uint32
			Flags, Type uint16
			Handle      uint64
			Offset      int64
			Length      uint32
		}
		if err := binary.Read(c, binary.BigEndian, &q); err != nil {
			return err
		}
		if q.Magic != nbdRequest || q.Offset < 0 || q.Offset+int64(q.Length) > int64(len(d.now)) {
			return fmt.Errorf("request %+v", q)
		}
		var data []byte
		switch q.Type {
		case nbdRead:
			data = d.read(q.Offset, q.Length)
		case nbdWrite:
			in := make([]byte, q.Length)
			if _, err := io.ReadFull(c, in); err != nil {
				return err
			}
			d.write(q.Offset, in)
		case nbdFlush:
			if !d.flush() { // until the machine is killed
				_, err := io.Copy(io.Discard, c)
				return err
			}
		case nbdEnd:
			return nil
		default:
			return fmt.Errorf("request %+v", q)
		}
		head := binary.BigEndian.AppendUint32(nil, nbdReply)
		head = binary.BigEndian.AppendUint64(append(head, 0, 0, 0, 0), q.Handle)
		if _, err := c.Write(append(head, data...)); err != nil {
			return err
		}
	}
}

// greet says how large the disk is.
func (d *powerDisk) greet(c net.Conn) error {
	hello := binary.BigEndian.AppendUint64(nil, nbdMagic)
	hello = binary.BigEndian.AppendUint64(hello, nbdOption)
	if _, err := c.Write(binary.BigEndian.AppendUint16(hello, nbdNewstyle)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(c, binary.BigEndian, &flags); err != nil {
		return err
	}
	for {
		var o struct {
			Magic        uint64
			Option, Size uint32
		}
		if err := binary.Read(c, binary.BigEndian, &o); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c, int64(o.Size)); err != nil {
			return err
		}
		says := func(kind uint32, data []byte) error {
			b := binary.BigEndian.AppendUint64(nil, nbdOptionSays)
			for _, v := range []uint32{o.Option, kind, uint32(len(data))} {
				b = binary.BigEndian.AppendUint32(b, v)
			}
			_, err := c.Write(append(b, data...))
			return err
		}
		if o.Option != nbdGo {
			if err := says(nbdUnsupported, nil); err != nil {
				return err
			}
			continue
		}
		export := binary.BigEndian.AppendUint64([]byte{0, 0}, uint64(len(d.now)))
		return errors.Join(says(nbdInfo, binary.BigEndian.AppendUint16(export, nbdFlushes)), says(nbdAck, nil))
	}
}

func (d *powerDisk) read(at int64, n uint32) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]byte(nil), d.now[at:at+int64(n)]...)
}

func (d *powerDisk) write(at int64, b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.now[at:], b)
	if d.ended != nil {
		d.log = append(d.log, write{at, b})
	}
}

// flush reports whether the power is still there.
func (d *powerDisk) flush() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended == nil {
		return true
	}
	if d.left--; d.left <= 0 {
		close(d.ended)
		return false
	}
	d.log = append(d.log, write{})
	return true
}
