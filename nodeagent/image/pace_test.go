package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema"
)

// TestPace: what counts is what comes while somebody waits, over whole windows.
func TestPace(t *testing.T) {
	t.Parallel()
	type step struct {
		n      int
		waited time.Duration
	}
	for name, c := range map[string]struct {
		steps []step
		rate  int64
		slow  bool
	}{
		"at the floor":         {[]step{{500, 5 * time.Second}, {500, 5 * time.Second}}, 100, false},
		"below":                {[]step{{500, 5 * time.Second}, {490, 5 * time.Second}}, 99, true},
		"not yet":              {[]step{{0, 9 * time.Second}}, 0, false},
		"no waiter":            {[]step{{1, 0}, {1, 0}, {1, time.Second}}, 0, false},
		"a window of its own":  {[]step{{1 << 30, 10 * time.Second}, {100, 10 * time.Second}}, 10, true},
		"nothing for too long": {[]step{{0, 25 * time.Second}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pace{floor: 100, window: 10 * time.Second}
			var rate int64
			var slow bool
			for _, s := range c.steps {
				rate, slow = p.add(s.n, s.waited)
			}
			if rate != c.rate || slow != c.slow {
				t.Errorf("%d bytes a second, slow %v; want %d, %v", rate, slow, c.rate, c.slow)
			}
		})
	}
}

// trickle answers each request for a blob with so many bytes a second, by host; -1: it is down.
type trickle struct {
	content []byte
	rates   map[string]int
	asked   []string // host and offset
}

// RoundTrip implements http.RoundTripper.
func (f *trickle) RoundTrip(r *http.Request) (*http.Response, error) {
	var from int
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
	f.asked = append(f.asked, fmt.Sprintf("%s %d", r.URL.Host, from))
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, ContentLength: -1}
	rate := f.rates[r.URL.Host]
	if rate < 0 {
		res.StatusCode = http.StatusServiceUnavailable
		return res, nil
	}
	if from > 0 {
		res.StatusCode = http.StatusPartialContent
		res.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(f.content)-1, len(f.content)))
	}
	res.Body = &dripping{bytes.NewReader(f.content[from:]), rate}
	return res, nil
}

// dripping gives a second's bytes after a second.
type dripping struct {
	*bytes.Reader

	rate int
}

// Read implements io.Reader.
func (d *dripping) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return d.Reader.Read(p[:min(len(p), d.rate)])
}

// Close implements io.Closer.
func (d *dripping) Close() error { return nil }

// fetch reads a blob of registry.example, whose mirrors are given, with a pause after each piece.
func (f *trickle) fetch(t *testing.T, s *search, pause time.Duration, mirrors ...string) error {
	t.Helper()
	c := newClient(&Config{Transport: f})
	b := &blob{
		repository: repository{client: c, hosts: c.hosts("registry.example", Access{Mirrors: map[string][]string{"registry.example": mirrors}}), name: "team/app", search: s},
		sum:        digest.FromBytes(f.content), size: int64(len(f.content)),
	}
	defer b.close()
	var got []byte
	for p := make([]byte, 1<<20); ; {
		n, err := b.read(t.Context(), p)
		if got = append(got, p[:n]...); errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		time.Sleep(pause)
	}
	if !bytes.Equal(got, f.content) {
		t.Errorf("%d bytes came, which are others", len(got))
	}
	return nil
}

// TestSlowRegistry: a host that never stalls and brings too little is left, for others first.
func TestSlowRegistry(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // 256 KiB
	const ours, mirror = "registry.example", "mirror.example"
	for name, c := range map[string]struct {
		rates map[string]int
		pause time.Duration
		asked []string
		says  string // "" is no error
	}{
		"slow":               {map[string]int{ours: 1023}, 0, []string{ours + " 0", ours + " 30690", ours + " 61380", ours + " 92070", ours + " 122760", ours + " 153450"}, "registry too slow: 1023 bytes a second for 30s, less than 1024"},
		"at the floor":       {map[string]int{ours: 1024}, 0, []string{ours + " 0"}, ""},
		"a disk that is":     {map[string]int{ours: 100_000}, time.Hour, []string{ours + " 0"}, ""},
		"a slow mirror":      {map[string]int{ours: 1 << 20, mirror: 2048}, 0, []string{mirror + " 0", ours + " 61440"}, ""},
		"a mirror that goes": {map[string]int{ours: -1, mirror: 40_000}, 0, []string{mirror + " 0"}, ""},
		"better than none":   {map[string]int{ours: -1, mirror: 2048}, 0, []string{mirror + " 0", ours + " 61440", mirror + " 61440"}, ""},
		"slow both": {
			map[string]int{ours: 1000, mirror: 2048},
			0,
			[]string{mirror + " 0", ours + " 61440", ours + " 91440", ours + " 121440", ours + " 151440", ours + " 181440", ours + " 211440", mirror + " 241440"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &trickle{content: content, rates: c.rates}
				var mirrors []string
				if _, ok := c.rates[mirror]; ok {
					mirrors = []string{mirror}
				}
				err := f.fetch(t, nil, c.pause, mirrors...)
				if (err == nil) != (c.says == "") || err != nil && (!errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), c.says)) {
					t.Errorf("error %v, want %q", err, c.says)
				}
				if !slices.Equal(f.asked, c.asked) {
					t.Errorf("asked %q, want %q", f.asked, c.asked)
				}
			})
		})
	}
}

// late is another machine that has the blob after a while.
type late struct {
	content []byte
	began   time.Time
}

// Sources implements Peers.
func (l *late) Sources(context.Context, schema.SourceQuestion) (schema.SourceAnswer, error) {
	if time.Since(l.began) < 20*time.Second {
		return schema.SourceAnswer{Registry: true}, nil
	}
	return schema.SourceAnswer{Registry: true, Peers: []schema.SourcePeer{{Machine: "m", Holds: true}}}, nil
}

// Get implements Peers.
func (l *late) Get(_ context.Context, _ schema.SourcePeer, b PeerBlob) (PeerAnswer, error) {
	return PeerAnswer{Body: io.NopCloser(bytes.NewReader(l.content[b.Offset:])), Size: int64(len(l.content))}, nil
}

// TestSlowRegistryPeers: a machine that has the blob by then is asked before the slow registry is again.
func TestSlowRegistryPeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &trickle{content: bytes.Repeat([]byte("0123456789abcdef"), 16<<10), rates: map[string]int{"registry.example": 10}}
		s := (&search{peers: &late{f.content, time.Now()}, content: "sha256:c", now: time.Now, slow: slowTime, traffic: new(atomic.Int64)}).begin()
		if err := f.fetch(t, s, 0); err != nil || !slices.Equal(f.asked, []string{"registry.example 0"}) {
			t.Errorf("asked %q, error %v", f.asked, err)
		}
	})
}
