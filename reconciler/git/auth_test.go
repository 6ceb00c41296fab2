package git_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/git"
)

// file writes a file that only its owner can read.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// opened is file for all to read.
func opened(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// What is wrong with a master's configuration is reported before a remote is asked.
func TestAuthErrors(t *testing.T) {
	t.Parallel()
	local, _ := newRepo(t)
	keys := newKeys(t)
	hosts := file(t, "")
	token := file(t, "t0ken\n")
	shell := git.Auth{KeyFile: keys.plain, KnownHosts: hosts}
	tests := []struct {
		name, url     string
		auth          git.Auth
		problem, hint string
	}{
		{"password in the URL", "https://u:t0ken@h/x", git.Auth{}, "https://h/x: the URL holds a password", "--git-token-file FILE"},
		{"password in an ssh URL", "ssh://u:t0ken@h/x", git.Auth{}, "ssh://u@h/x: the URL holds a password", "with ssh, use a key"},
		{"token in the place of the user", "https://t0ken@h/x", git.Auth{}, "https://h/x: a user is given without credentials", "--git-token-file FILE"},
		{"user without a token", "https://h/x", git.Auth{User: "u"}, "a user is given without credentials", "--git-token-file FILE"},
		{"bearer without a token", "https://h/x", git.Auth{Bearer: true}, "--git-bearer is given without a token", "--git-token-file FILE"},
		{"bearer with a user", "https://h/x", git.Auth{Bearer: true, User: "u", TokenFile: token}, "beside a bearer token", "leave out the user"},
		{"two users", "https://u@h/x", git.Auth{User: "v", TokenFile: token}, "different users", "give one"},
		{"clear text", "http://h/x", git.Auth{TokenFile: token}, "in clear text", "https URL"},
		{"token for ssh", "ssh://h/x", git.Auth{TokenFile: token}, "token file is given, but it is of no use with ssh", "https"},
		{"CA for http", "http://h/x", git.Auth{CAFile: token}, "CA file is given, but it is of no use with http", "https"},
		{"key for https", "https://h/x", git.Auth{KeyFile: keys.plain}, "key file is given, but it is of no use with https", "ssh"},
		{"key for a directory", local, shell, "a directory of this machine", "leave them out"},
		{"no token file", "https://h/x", git.Auth{TokenFile: token + "-"}, "--git-token-file: stat " + token + "-: no such file", "can read"},
		{"token directory", "https://h/x", git.Auth{TokenFile: filepath.Dir(token)}, "is not a file", "name a file"},
		{"empty token", "https://h/x", git.Auth{TokenFile: file(t, "\n")}, "is empty", "one line"},
		{"two tokens", "https://h/x", git.Auth{TokenFile: file(t, "a\nb\n")}, "more than one line", "one line"},
		{"token for all", "https://h/x", git.Auth{TokenFile: opened(t, file(t, "t0ken"), 0o644)}, "has mode 0644", "chmod 600"},
		{"no certificate", "https://h/x", git.Auth{CAFile: token}, "no certificate in PEM", "BEGIN CERTIFICATE"},
		{"no known hosts", "git@h:x", git.Auth{KeyFile: keys.plain}, "git@h:x: the server's host key is not known", "ssh-keyscan h > FILE"},
		{"no known hosts, a port", "ssh://h:2222/x", git.Auth{KeyFile: keys.plain}, "host key is not known", "ssh-keyscan -p 2222 h"},
		{"known hosts of others", "git@h:x", git.Auth{KeyFile: keys.plain, KnownHosts: opened(t, file(t, ""), 0o666)}, "has mode 0666", "chmod 600"},
		{"odd known hosts", "git@h:x", git.Auth{KeyFile: keys.plain, KnownHosts: token}, "--git-known-hosts: ", "HOST TYPE KEY"},
		{"no key", "git@h:x", git.Auth{KnownHosts: hosts}, "no private key is given", "--git-key-file FILE"},
		{"key for all", "git@h:x", git.Auth{KnownHosts: hosts, KeyFile: opened(t, file(t, "x"), 0o640)}, "has mode 0640: others than its owner", "chmod 600"},
		{"public key", "git@h:x", git.Auth{KnownHosts: hosts, KeyFile: opened(t, keys.plain+".pub", 0o600)}, "holds no private key", "not the .pub"},
		{"locked key", "git@h:x", git.Auth{KnownHosts: hosts, KeyFile: keys.locked}, "is encrypted", "--git-key-passphrase-file"},
		{"wrong passphrase", "git@h:x", git.Auth{KnownHosts: hosts, KeyFile: keys.locked, PassphraseFile: token}, "does not open the key", "passphrase"},
		{"needless passphrase", "git@h:x", git.Auth{KnownHosts: hosts, KeyFile: keys.plain, PassphraseFile: token}, "is not encrypted", "leave out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "store")
			_, err := git.Open(t.Context(), git.Config{URL: tt.url, Auth: tt.auth, Dir: dir})
			wantError(t, err, tt.problem, tt.hint)
			if err != nil && strings.Contains(err.Error(), "t0ken") {
				t.Errorf("the token is in the error: %v", err)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("a mistake leaves a store behind")
			}
		})
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://u:p@h/x.git":       "https://h/x.git",
		"https://token@h:8/x?a=b@c": "https://h:8/x?a=b@c",
		"https://u:p/q@h/x":         "https://h/x",
		"https://u:p#q@h/x":         "https://h/x",
		"https://h:8443/x@y":        "https://h:8443/x@y",
		"https://[::1]:8443/x@y":    "https://[::1]:8443/x@y",
		"https://u:p@q@h/x":         "https://h/x",
		"https://u:%zz@h/x":         "https://h/x", // no URL at all, and still a password
		"ssh://git:p@h/x":           "ssh://git@h/x",
		"git@h:x":                   "git@h:x",
		"/srv/x@y":                  "/srv/x@y",
	} {
		if got := git.Redact(raw); got != want {
			t.Errorf("Redact(%s): %s, want %s", raw, got, want)
		}
	}
}

// Whatever is in a password, it is not shown.
func FuzzRedact(f *testing.F) {
	for _, p := range []string{"s3cret", "a/b", "a@b", "a?b#c", ":", "%zz", "[", "ü\x00"} {
		f.Add("https", "user", p, "host/path")
		f.Add("ssh", "", p, "[::1]:22/x")
	}
	f.Fuzz(func(t *testing.T, scheme, user, secret, rest string) {
		marked := "<" + secret + ">" // which no other part of the URL has
		if strings.ContainsAny(scheme+user, ":/?#@[]<") || scheme == "" || strings.EqualFold(scheme, "file") || strings.Contains(rest, "<") || strings.Contains(rest, "@") {
			return // another URL than is meant
		}
		raw := scheme + "://" + user + ":" + marked + "@" + rest
		if got := git.Redact(raw); strings.Contains(got, "<") {
			t.Errorf("Redact(%q): %q", raw, got)
		}
		_, err := git.Open(t.Context(), git.Config{URL: raw, Dir: "/nowhere"})
		if err == nil || strings.Contains(err.Error(), marked) {
			t.Errorf("Open(%q): %v", raw, err)
		}
	})
}
