package web

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// pageLife is the life of a password of the page: a working day.
	pageLife = 12 * time.Hour
	// maxPasswords is how many there are at once; the oldest goes first.
	maxPasswords = 32
	pageUser     = "muster"
)

// PageAddress is where a browser sees the status page.
type PageAddress struct {
	URL   string    `json:"url"` // with a password
	Until time.Time `json:"until"`
}

// pages are the passwords of the page, for browsers of users who may not ask
// otherwise. Basic authentication carries them, since a browser keeps that to one
// port: a cookie would go to every program of this machine that answers the
// browser, tasks too. Each password is for the user who shows it first.
type pages struct {
	mu    sync.Mutex // guards given
	given []password
}

type password struct {
	digest [sha256.Size]byte
	until  time.Time
	uid    uint32
	taken  bool // by uid
}

// issue makes a password that is good until a time.
func (p *pages) issue(now time.Time) (text string, until time.Time) {
	text, until = rand.Text(), now.Add(pageLife)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = slices.DeleteFunc(p.given, func(g password) bool { return now.After(g.until) })
	p.given = append(p.given[max(0, len(p.given)-maxPasswords+1):], password{digest: sha256.Sum256([]byte(text)), until: until})
	return text, until
}

// admits returns whether a request for the page shows a password that is its
// user's.
func (p *pages) admits(r *http.Request) bool {
	who := peerOf(r)
	user, text, ok := r.BasicAuth()
	if !ok || user != pageUser || r.URL.Path != "/" || !readsOnly(r) || who.err != nil || schema.IsTaskUser(who.uid) {
		return false
	}
	digest, now := sha256.Sum256([]byte(text)), time.Now() // compared as digests, which takes no time to learn from
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.given {
		g := &p.given[i]
		if g.digest != digest || now.After(g.until) || g.taken && g.uid != who.uid {
			continue
		}
		g.uid, g.taken = who.uid, true
		return true
	}
	return false
}

// pageAddress makes an address of the page.
func (s *Server) pageAddress(w http.ResponseWriter, _ *http.Request) error {
	u, err := url.Parse(s.cfg.Local.Page)
	if err != nil || s.cfg.Local.Page == "" {
		return &failure{http.StatusConflict, "the page of this cell is shown to whoever has a certificate", "import one of `muster pki issue` into the browser, and open the address of the API"}
	}
	text, until := s.pages.issue(time.Now())
	u.User = url.UserPassword(pageUser, text)
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, PageAddress{URL: u.String(), Until: until})
}
