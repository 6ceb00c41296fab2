package git

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/musterhq/muster/schema"
)

const (
	// lookTimeout bounds one look at a remote, with what it fetches.
	lookTimeout = 10 * time.Minute
	// stallTimeout is the silence after which a server is given up. One that
	// is at work on a pack says so every 5 s.
	stallTimeout = 30 * time.Second
	// maxRefs and maxPack bound what is taken of a server, in bytes.
	maxRefs = 64 << 20
	maxPack = 512 << 20
	// followedRef keeps which branch the remote's HEAD named last.
	followedRef = plumbing.ReferenceName("refs/muster/followed")
	// maxPacks is when the store is made afresh: each fetch adds a pack, and
	// go-git cannot collect garbage.
	maxPacks = 100
)

var defaultPorts = map[string]string{"http": "80", "https": "443", "ssh": "22", "git": "9418"}

// remote is a repository behind a transport, and its store here.
type remote struct {
	name     string // the URL without who we are
	url      string // the same as go-git takes it
	protocol string
	user     string // of the URL
	host     string
	port     string
	path     string
	branch   string
	auth     Auth
	once     bool // Config.Rev is set
	stall    time.Duration
	maxPack  int64                  // bytes that a fetch may take
	web      *web                   // of http and https
	dir      string                 // the store; everything in it may be wiped
	ref      plumbing.ReferenceName // the head as last fetched
	followed string                 // the branch that HEAD was found to name last; Repo.mu guards it
}

// session is a conversation with git-upload-pack.
type session interface {
	AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error)
	UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	Close() error
}

// hangUp ends what is over: what was wanted of it is here, or an error is.
func hangUp(c io.Closer) { _ = c.Close() }

// parseURL distinguishes local paths and remotes.
func parseURL(raw string) (path string, far *remote, err error) {
	if raw == "" {
		return "", nil, schema.Hintf("give a path or a URL", "no repository is named")
	}
	if path := (Config{URL: raw}).path(); path != "" {
		abs, err := filepath.Abs(path)
		return abs, nil, err
	}
	name := Redact(raw)
	ep, err := transport.NewEndpoint(raw)
	if err != nil || !isHost(ep.Host) {
		return "", nil, schema.Hintf("give a path or a URL such as https://host/path", "repository %s: it is not a URL", name)
	}
	m := &remote{
		name: name, protocol: ep.Protocol, user: ep.User, host: strings.ToLower(strings.Trim(ep.Host, "[]")), port: defaultPorts[ep.Protocol], path: ep.Path,
	}
	if ep.Port != 0 {
		m.port = strconv.Itoa(ep.Port)
	}
	switch {
	case defaultPorts[m.protocol] == "":
		return "", nil, schema.Hintf("use a path, or a URL with https, http, ssh or git", "repository %s: %s is not supported", name, ep.Protocol)
	case ep.Password != "":
		return "", nil, schema.Hintf("take it out of the URL and put it into a file that only you can read: --git-token-file FILE; with ssh, use a key",
			"repository %s: the URL holds a password, which all users of the machine can see", name)
	case m.host == "" || strings.Trim(m.path, "/") == "" || strings.HasPrefix(m.path, "-"):
		return "", nil, schema.Hintf("give a URL such as https://host/path", "repository %s: no host, or no path on it", name)
	}
	if m.protocol == "http" || m.protocol == "https" {
		m.web = &web{remote: m}
		ep.User = ""
	}
	m.url = ep.String()
	return "", m, nil
}

// isHost reports whether s may be a host: a name, or an address with or without
// brackets. One that has a colon is more likely a user and a password.
func isHost(s string) bool {
	_, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return err == nil || !strings.ContainsAny(s, ":<>\"{}|\\^[] ")
}

// path returns the local path that URL is, or "".
func (c Config) path() string {
	if path, ok := strings.CutPrefix(c.URL, "file://"); ok {
		return strings.TrimPrefix(path, "localhost")
	}
	if _, err := os.Stat(c.URL); err == nil {
		return c.URL
	}
	if ep, err := transport.NewEndpoint(c.URL); err == nil && ep.Protocol == "file" {
		return c.URL
	}
	return ""
}

// IsRemote reports whether a repository of this name is asked over a network.
func IsRemote(raw string) bool { return raw != "" && (Config{URL: raw}).path() == "" }

// Redact returns a repository's URL as it may be shown: without a password and,
// with http, where a token may be in its place, without the user.
func Redact(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return raw // host:path, which has no place for a password, or a path
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@')
	host := rest[:end]
	if i := strings.IndexByte(host, ']'); host != "" && host[0] == '[' && i > 0 {
		host = host[i:]
	}
	if _, port, ok := strings.Cut(host, ":"); at < 0 && ok && strings.Trim(port, "0123456789") != "" {
		at = strings.LastIndexByte(rest, '@') // no port: a password that has what ends a host
	}
	if at < 0 {
		return raw
	}
	if strings.Contains(rest[:at], ":") {
		// A password may have what ends a host, too. Rather too little is shown.
		at = strings.LastIndexByte(rest, '@')
	}
	user := ""
	if u, _, _ := strings.Cut(rest[:at], ":"); scheme == "ssh" {
		user = u + "@"
	}
	return (&url.URL{Scheme: scheme, Opaque: "//" + user + rest[at+1:]}).String()
}

// address returns host and port.
func (m *remote) address() string { return net.JoinHostPort(m.host, m.port) }

// openRemote takes up what an earlier process fetched.
func (r *Repo) openRemote() error {
	m := r.remote
	if r.cfg.Dir == "" {
		return fmt.Errorf("repository %s: no directory for its store is named", r.name)
	}
	m.branch, m.auth, m.stall, m.maxPack = r.cfg.Branch, r.cfg.Auth, r.cfg.Stall, maxPack
	m.once = r.cfg.Rev != "" // it is read for a user who waits, and not followed
	if err := m.auth.check(m); err != nil {
		return fmt.Errorf("repository %s: %w", r.name, err)
	}
	if m.branch != "" && r.cfg.Rev != "" {
		return fmt.Errorf("repository %s: both a branch and a revision are named", r.name)
	}
	key := sha256.Sum256([]byte(m.url + "\x00" + m.branch + r.cfg.Rev))
	m.dir = filepath.Join(r.cfg.Dir, "remote.git")
	m.ref = plumbing.ReferenceName(fmt.Sprintf("refs/muster/%x", key[:8]))
	// One that was killed while it replaced the store left the old one aside.
	if _, err := os.Stat(m.dir); errors.Is(err, os.ErrNotExist) {
		_ = os.Rename(m.dir+".old", m.dir) // there is none, most times
	}
	// What is there is used; what is not is made when there is something to
	// put in it.
	repo, err := gogit.PlainOpen(m.dir)
	if err != nil {
		return nil //nolint:nilerr // no store, or none that can be used: as if nothing was fetched yet
	}
	r.repo = repo
	if commit, err := r.fetched(); err == nil {
		r.head = commit.String()
	}
	if ref, err := repo.Reference(followedRef, false); err == nil {
		m.followed = ref.Target().Short()
	}
	return nil
}

// fetched returns the head in the store, if it can be read. r.mu is held.
func (r *Repo) fetched() (plumbing.Hash, error) {
	ref, err := r.repo.Reference(r.remote.ref, true)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	_, err = r.commit(ref.Hash())
	return ref.Hash(), err
}

// open begins a conversation.
func (m *remote) open(ctx context.Context, w *wire) (session, error) {
	w.expect(maxRefs)
	switch m.protocol {
	case "ssh":
		return m.openShell(ctx, w)
	case "git":
		return m.openDaemon(ctx, w)
	}
	return m.web.open(ctx, w)
}

// remoteHead lists the remote's head and fetches it if it is not here. It
// returns the head before if the new one does not descend from it.
func (r *Repo) remoteHead(ctx context.Context) (head, rewritten string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	watched, w := newWire(ctx, r.remote.stall)
	defer w.close()
	head, rewritten, err = r.ask(watched, w)
	if err != nil {
		return "", "", r.remote.explain(w.why(err))
	}
	return head, rewritten, nil
}

func (r *Repo) ask(ctx context.Context, w *wire) (head, rewritten string, err error) {
	s, err := r.remote.open(ctx, w)
	if err != nil {
		return "", "", err
	}
	defer hangUp(s)
	refs, err := s.AdvertisedReferencesContext(ctx)
	if err != nil {
		return "", "", err
	}
	want, asked, err := r.wanted(refs)
	if err != nil {
		return "", "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var have plumbing.Hash
	if r.repo != nil {
		if have, err = r.fetched(); err != nil {
			have = plumbing.ZeroHash
		}
	}
	if have == want {
		return want.String(), "", nil
	}
	if err := r.fetch(ctx, w, fetching{s, refs, want, asked, have}); err != nil {
		return "", "", err
	}
	if r.remote.followed != "" { // for messages of the next process: without it they say less
		_ = r.repo.Storer.SetReference(plumbing.NewSymbolicReference(followedRef, plumbing.NewBranchReferenceName(r.remote.followed)))
	}
	if have != plumbing.ZeroHash && !r.descends(ctx, w, want, have) {
		rewritten = have.String()
	}
	return want.String(), rewritten, nil
}

// wanted returns the commit to fetch, and what to ask for to have it, which may be a tag.
func (r *Repo) wanted(refs *packp.AdvRefs) (commit, asked plumbing.Hash, err error) {
	rev := r.cfg.Rev
	if rev == "" {
		commit, err = r.pick(refs)
		return commit, commit, err
	}
	if plumbing.IsHash(rev) { // whatever the server calls a tag
		return plumbing.NewHash(rev), plumbing.NewHash(rev), nil
	}
	for _, name := range []plumbing.ReferenceName{plumbing.NewTagReferenceName(rev), plumbing.NewBranchReferenceName(rev)} {
		if hash, ok := refs.References[name.String()]; ok {
			if peeled, ok := refs.Peeled[name.String()]; ok {
				return peeled, hash, nil
			}
			return hash, hash, nil
		}
	}
	return commit, asked, schema.Hintf("check the name; a commit is named by its whole hash", "repository %s: there is no tag or branch %q", r.name, rev)
}

// pick returns the head of the followed branch.
func (r *Repo) pick(refs *packp.AdvRefs) (plumbing.Hash, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.remote
	all, err := refs.AllReferences()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	name := plumbing.HEAD
	if m.branch != "" {
		name = plumbing.NewBranchReferenceName(m.branch)
	}
	ref := all[name]
	if ref != nil && ref.Type() == plumbing.SymbolicReference {
		name = ref.Target()
		ref = all[name]
	}
	if ref != nil {
		if m.branch == "" && name != plumbing.HEAD {
			m.followed = name.Short()
		}
		return ref.Hash(), nil
	}
	var names []string
	for name := range all {
		if name.IsBranch() {
			names = append(names, name.Short())
		}
	}
	branch := name.Short()
	if name == plumbing.HEAD { // a server does not list one that names no branch
		branch = m.followed
	}
	return plumbing.ZeroHash, noBranch(m.name, branch, names)
}
