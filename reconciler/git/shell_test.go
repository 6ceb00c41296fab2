package git_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/musterhq/muster/reconciler/git"
)

// keys is a private key in two files, encrypted in one; plain.pub is the public
// one.
type keys struct {
	public        ssh.PublicKey
	plain, locked string
}

const passphrase = "pass phrase"

func newKeys(t *testing.T) keys {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return keysOf(t, private)
}

func keysOf(t *testing.T, private any) keys {
	t.Helper()
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	if err != nil {
		t.Fatal(err)
	}
	k := keys{signer.PublicKey(), file(t, string(pem.EncodeToMemory(plain))), file(t, string(pem.EncodeToMemory(locked)))}
	if err := os.WriteFile(k.plain+".pub", ssh.MarshalAuthorizedKey(k.public), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// sshd is OpenSSH's server, one process for each connection that is accepted
// here.
type sshd struct {
	addr  string
	user  string
	mu    sync.Mutex // guards hosts
	hosts []string   // files of its keys
	cert  string     // file of the certificate of one, "" for none
	dir   string
}

func startShell(t *testing.T, client ssh.PublicKey, host keys) *sshd {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/sshd"); err != nil {
			t.Skip("SKIPPED: there is no sshd; install openssh-server")
		}
	}
	if os.Geteuid() == 0 { // it insists
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	s := &sshd{user: me.Username, hosts: []string{host.plain}, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.dir, "authorized"), ssh.MarshalAuthorizedKey(client), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	var served sync.WaitGroup
	t.Cleanup(func() { l.Close(); served.Wait() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serve(t, program, conn) })
		}
	})
	return s
}

func (s *sshd) serve(t *testing.T, program string, conn net.Conn) {
	defer conn.Close()
	f, err := conn.(*net.TCPConn).File()
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	args := []string{
		"-i", "-e", "-f", "/dev/null", "-o", "AuthorizedKeysFile=" + filepath.Join(s.dir, "authorized"), "-o", "StrictModes=no",
		"-o", "UsePAM=no", "-o", "PermitRootLogin=yes", "-o", "PasswordAuthentication=no", "-o", "PidFile=none", "-o", "LogLevel=ERROR",
	}
	s.mu.Lock()
	for _, host := range s.hosts {
		args = append(args, "-o", "HostKey="+host)
	}
	if s.cert != "" {
		args = append(args, "-o", "HostCertificate="+s.cert)
	}
	s.mu.Unlock()
	cmd := exec.Command(program, args...)
	cmd.Env = gitEnv()
	cmd.Stdin, cmd.Stdout = f, f
	var said bytes.Buffer
	cmd.Stderr = &said
	_ = cmd.Run() // a client that leaves is an error to it
	if t.Failed() {
		t.Logf("sshd: %s", &said)
	}
}

func (s *sshd) use(host keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts = []string{host.plain}
}

// url returns that of a repository, with the port in it.
func (s *sshd) url(path string) string { return fmt.Sprintf("ssh://%s@%s%s", s.user, s.addr, path) }

func (s *sshd) known(t *testing.T, host ssh.PublicKey) string {
	t.Helper()
	return file(t, knownhosts.Line([]string{s.addr}, host)+"\n")
}

// shelled is a repository behind ssh.
func shelled(t *testing.T) (dir, head, bare string, s *sshd, client, host keys) {
	t.Helper()
	dir, head = newRepo(t)
	bare = kinds["bare"](t, dir)
	run(t, dir, "remote", "add", "origin", bare)
	client, host = newKeys(t), newKeys(t)
	return dir, head, bare, startShell(t, client.public, host), client, host
}

func TestShell(t *testing.T) {
	t.Parallel()
	dir, head, bare, s, client, host := shelled(t)
	_, port, _ := strings.Cut(s.addr, ":")
	auth := git.Auth{KeyFile: client.plain, KnownHosts: s.known(t, host.public)}
	for name, tt := range map[string]struct {
		url  string
		auth func(*git.Auth)
	}{
		"ssh URL":      {s.url(bare), func(*git.Auth) {}},
		"scp-like":     {s.user + "@127.0.0.1:" + port + ":" + bare, func(*git.Auth) {}},
		"user by flag": {"ssh://" + s.addr + bare, func(a *git.Auth) { a.User = s.user }},
		"passphrase":   {s.url(bare), func(a *git.Auth) { a.KeyFile, a.PassphraseFile = client.locked, file(t, passphrase+"\n") }},
		"hashed known_hosts": {s.url(bare), func(a *git.Auth) {
			a.KnownHosts = file(t, strings.Replace(knownhosts.Line([]string{s.addr}, host.public), knownhosts.Normalize(s.addr), knownhosts.HashHostname(knownhosts.Normalize(s.addr)), 1))
		}},
	} {
		a := auth
		tt.auth(&a)
		if got, err := open(t, git.Config{URL: tt.url, Auth: a, Dir: t.TempDir()}).Head(t.Context()); err != nil || got != head {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	r := open(t, git.Config{URL: s.url(bare), Branch: "main", Auth: auth, Dir: t.TempDir()})
	wantHead(t, r, head)
	for i := range 3 {
		head = push(t, dir, fmt.Sprintf("%d.cue", i), "package a\n")
		wantHead(t, r, head)
		wantFiles(t, r, head, i+2)
	}
}

// Nothing of whoever runs the master changes where it goes, whom it trusts and
// who it says it is.
func TestShellAlone(t *testing.T) {
	_, head, bare, s, client, host := shelled(t)
	home := t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte("Host 127.0.0.1\n  Hostname 127.0.0.2\n  Port 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("ALL_PROXY", "socks5://127.0.0.1:1")
	t.Setenv("SSH_AUTH_SOCK", filepath.Join(home, "agent"))
	wantHead(t, open(t, git.Config{URL: s.url(bare), Auth: git.Auth{KeyFile: client.plain, KnownHosts: s.known(t, host.public)}, Dir: t.TempDir()}), head)
	// A known_hosts of the environment does not make a host known.
	t.Setenv("SSH_KNOWN_HOSTS", s.known(t, host.public))
	_, err := open(t, git.Config{URL: s.url(bare), Auth: git.Auth{KeyFile: client.plain, KnownHosts: file(t, "")}, Dir: t.TempDir()}).Head(t.Context())
	wantError(t, err, "has no key of the server", "ssh-keyscan")
}

func TestShellErrors(t *testing.T) {
	t.Parallel()
	_, _, bare, s, client, host := shelled(t)
	_, port, _ := strings.Cut(s.addr, ":")
	other := newKeys(t)
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaKeys := keysOf(t, private)
	good := s.known(t, host.public)
	printed := func(k keys) string { return "ed25519 " + ssh.FingerprintSHA256(k.public) }
	tests := []struct {
		name, url, known, key string
		problem, hint         string
	}{
		{"unknown host", s.url(bare), file(t, "# nothing\n"), client.plain, "has no key of the server, whose key is " + printed(host), "`ssh-keyscan -p " + port + " 127.0.0.1 >> "},
		{"changed host", s.url(bare), s.known(t, other.public), client.plain, "the server's key is " + printed(host) + ", but ", "man-in-the-middle"},
		{"changed host, expected", s.url(bare), s.known(t, other.public), client.plain, "says " + printed(other) + " (line 1)", "replace the line"},
		{"other kind of key", s.url(bare), s.known(t, rsaKeys.public), client.plain, "has no key of the kinds", "ssh-keyscan -p " + port},
		{"revoked", s.url(bare), file(t, "@revoked * "+strings.TrimSpace(string(ssh.MarshalAuthorizedKey(host.public)))+"\n"+knownhosts.Line([]string{s.addr}, host.public)), client.plain, "is revoked by", "new key"},
		{"other key", s.url(bare), good, other.plain, "rejects user " + s.user + " with the key " + printed(other), ".pub) read the repository"},
		{"other user", strings.Replace(s.url(bare), s.user+"@", "nobody-such@", 1), good, client.plain, "rejects user nobody-such", "check the user"},
		{"no repository", s.url(bare + "-not"), good, client.plain, "there is no such repository (the server says: ", "check the URL"},
		{"odd path", s.url("/it's $(touch x)!"), good, client.plain, "there is no such repository", "check the URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := open(t, git.Config{URL: tt.url, Auth: git.Auth{KeyFile: tt.key, KnownHosts: tt.known}, Dir: t.TempDir()})
			_, err := r.Head(t.Context())
			wantError(t, err, tt.problem, tt.hint)
			if _, again := r.Head(t.Context()); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("the same trouble is reported in other words: %v", again)
			}
		})
	}
}

// A key that the file learns of, and one that changes, are used at the next
// look.
func TestShellKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	_, head, bare, s, client, host := shelled(t)
	known := s.known(t, host.public)
	r := open(t, git.Config{URL: s.url(bare), Auth: git.Auth{KeyFile: client.plain, KnownHosts: known}, Dir: t.TempDir()})
	wantHead(t, r, head)
	next := newKeys(t)
	s.use(next)
	_, err := r.Head(t.Context())
	wantError(t, err, "the server's key is", "replace the line")
	if err := os.WriteFile(known, []byte(knownhosts.Line([]string{s.addr}, next.public)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantHead(t, r, head)
}

// A server's key may be known by the authority that has signed it.
func TestShellAuthority(t *testing.T) {
	t.Parallel()
	_, head, bare, s, client, host := shelled(t)
	authority := newKeys(t)
	sign := func(until time.Time) {
		t.Helper()
		data, err := os.ReadFile(authority.plain)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.ParsePrivateKey(data)
		if err != nil {
			t.Fatal(err)
		}
		c := &ssh.Certificate{Key: host.public, CertType: ssh.HostCert, ValidPrincipals: []string{"127.0.0.1"}, ValidBefore: uint64(until.Unix())}
		if err := c.SignCert(rand.Reader, signer); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(host.plain+"-cert.pub", ssh.MarshalAuthorizedKey(c), 0o600); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cert = host.plain + "-cert.pub"
	}
	_, port, _ := strings.Cut(s.addr, ":")
	line := func(k keys) string {
		return file(t, "@cert-authority [127.0.0.1]:"+port+" "+string(ssh.MarshalAuthorizedKey(k.public)))
	}
	ask := func(known string) (string, error) {
		return open(t, git.Config{URL: s.url(bare), Auth: git.Auth{KeyFile: client.plain, KnownHosts: known}, Dir: t.TempDir()}).Head(t.Context())
	}
	sign(time.Now().Add(time.Hour))
	if got, err := ask(line(authority)); err != nil || got != head {
		t.Errorf("signed: %s, %v", got, err)
	}
	_, err := ask(line(newKeys(t)))
	wantError(t, err, "the server's key", "authority")
	sign(time.Now().Add(-time.Hour))
	_, err = ask(line(authority))
	wantError(t, err, "is not accepted: ", "certificate renewed")
	// Who knows the key itself needs no authority.
	if got, err := ask(s.known(t, host.public)); err != nil || got != head {
		t.Errorf("known: %s, %v", got, err)
	}
}

// A server that accepts and says nothing, or leaves, does not hold a master up.
func TestShellSilence(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan string, 3)
	var held sync.WaitGroup
	defer held.Wait()
	held.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if text := <-answers; text != "" {
				_, _ = conn.Write([]byte(text))
				conn.Close()
				continue
			}
			held.Go(func() { _, _ = conn.Read(make([]byte, 1<<10)); _, _ = conn.Read(make([]byte, 1)); conn.Close() })
		}
	})
	client := newKeys(t)
	r := open(t, git.Config{URL: "ssh://" + l.Addr().String() + "/x", Stall: time.Second, Dir: t.TempDir(), Auth: git.Auth{KeyFile: client.plain, KnownHosts: file(t, "")}})
	answers <- ""
	_, err = r.Head(t.Context())
	wantError(t, err, "no answer within 1s", "check the server")
	answers <- "SSH-2.0-x\r\n"
	_, err = r.Head(t.Context())
	wantError(t, err, "the connection was lost", "tried again")
	l.Close()
	_, err = r.Head(t.Context())
	wantError(t, err, "connection refused", "tried again")
}

// git-daemon's protocol, which knows no credentials.
func TestDaemon(t *testing.T) {
	t.Parallel()
	dir, head := newRepo(t)
	bare := kinds["bare"](t, dir)
	run(t, dir, "remote", "add", "origin", bare)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	t.Cleanup(func() { l.Close(); served.Wait() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				cmd := exec.Command("git", "daemon", "--inetd", "--export-all", "--base-path="+filepath.Dir(bare))
				cmd.Env, cmd.Stdin, cmd.Stdout = gitEnv(), conn, conn
				_ = cmd.Run()
			})
		}
	})
	r := open(t, git.Config{URL: "git://" + l.Addr().String() + "/x.git", Branch: "main", Dir: t.TempDir()})
	wantHead(t, r, head)
	head = push(t, dir, "b.cue", "package a\n")
	wantHead(t, r, head)
	wantFiles(t, r, head, 2)
	_, err = open(t, git.Config{URL: "git://" + l.Addr().String() + "/y.git", Dir: t.TempDir()}).Head(t.Context())
	wantError(t, err, "there is no such repository", "check the URL")
}
