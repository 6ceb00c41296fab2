package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/dial"
	"github.com/musterhq/muster/schema"
)

// Where a task is asked: at the loopback address of one protocol, and where
// nobody listens there, of the other.
var loopbacks = []string{"127.0.0.1", "::1"}

// hostsOf returns where the task of an assignment is asked: where its network is, or the machine's;
// none if its network is its own and not known, for then others answer at the machine's.
func hostsOf(a *schema.Assignment) []string {
	var hosts []string
	for _, at := range a.Network.At() {
		hosts = append(hosts, at.String())
	}
	if hosts == nil && !a.OwnNetwork {
		return loopbacks
	}
	return hosts
}

// askNowhere is how a task is asked that has no address that is known.
func askNowhere(context.Context) (what string, err error) {
	return "health check", fmt.Errorf("%w: the addresses of the task's network are not known here", nodeagent.ErrNotRun)
}

// dialTask connects to a port of a task at the first of hosts where it listens.
func dialTask(ctx context.Context, hosts []string, port int) (net.Conn, error) {
	var first error
	for _, host := range hosts {
		c, err := dial.TCP(ctx, net.Dialer{}, net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			return c, nil
		}
		first = cmp.Or(first, err)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
	}
	return nil, first
}

// httpClient asks again each time, as a new client of the task would, takes a
// redirect for an answer, and goes through no proxy.
func httpClient(timeout time.Duration, hosts []string) *http.Client {
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				_, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				n, err := strconv.Atoi(port)
				if err != nil {
					return nil, err
				}
				return dialTask(ctx, hosts, n)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bodyTail is how much of an answer's body is read, so that a server that
// writes one is not cut off in the middle of it: in bytes.
const bodyTail = 4096

// askHTTP sends a request; an answer with a status from 200 to 399 is good.
func askHTTP(ctx context.Context, client *http.Client, h *schema.HTTPCheck, at string) (what string, err error) {
	method := cmp.Or(h.Method, http.MethodGet)
	target := "http://" + at + h.Path
	what = method + " " + target
	req, err := http.NewRequestWithContext(ctx, method, target, nil)
	if err != nil {
		return what, err
	}
	req.Header.Set("User-Agent", "muster-agent")
	for name, value := range h.Headers {
		if strings.EqualFold(name, "Host") {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return what, err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, bodyTail)
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return what, errors.New("status " + resp.Status)
	}
	return what, nil
}

// askTCP connects, and says nothing.
func askTCP(ctx context.Context, hosts []string, port int) (what string, err error) {
	c, err := dialTask(ctx, hosts, port)
	if err == nil {
		err = c.Close()
	}
	return "connect to " + net.JoinHostPort(hosts[0], strconv.Itoa(port)), err
}

// askExec runs a command beside the task.
func askExec(ctx context.Context, process Process, command []string, timeout time.Duration) (what string, err error) {
	what = "run " + command[0]
	output, err := process.Run(ctx, command, timeout)
	if err != nil {
		if last := lastLine(output); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
	}
	return what, err
}

// lastLine returns the last line of a text that says something.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexAny(s, "\r\n")+1:])
}

// reason says in a few words what went wrong: what was asked is said before.
func reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var errno syscall.Errno
	switch {
	case errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), ":"), os.IsTimeout(err):
		return "no answer in time"
	case errors.As(err, &errno):
		return errno.Error()
	}
	return err.Error()
}

// messageMax is the longest message of a check, in bytes.
const messageMax = 300

// printable returns what of s can be shown on one line of a terminal, at most
// most bytes: text of UTF-8 without control characters and what they begin.
func printable(s string, most int) string {
	var b strings.Builder
	for len(s) > 0 {
		if n := escape(s); n > 0 {
			s = s[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch {
		case r == utf8.RuneError && size == 1, unicode.Is(unicode.Bidi_Control, r):
			continue
		case r == '\t' || r == '\n' || r == '\r':
			r = ' '
		case !unicode.IsPrint(r):
			continue
		}
		if b.Len()+utf8.RuneLen(r) > most {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// escape returns the length of the terminal escape sequence at the start of s,
// 0 for none: ESC and what belongs to it, up to its end or that of s.
func escape(s string) int {
	if s[0] != 0x1b {
		return 0
	}
	if len(s) == 1 {
		return 1
	}
	switch s[1] {
	case '[': // CSI: parameters, then one letter
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']', 'P', 'X', '^', '_': // strings, up to BEL or ESC \
		for i := 2; i < len(s); i++ {
			if s[i] == 0x07 {
				return i + 1
			}
			if s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\' {
				return i + 2
			}
		}
		return len(s)
	}
	return 2
}
