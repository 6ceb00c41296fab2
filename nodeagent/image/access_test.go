package image

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestAccess: logins are tried one after the other, each with its own answer, and one that is
// exchanged counts at once.
func TestAccess(t *testing.T) {
	t.Parallel()
	for _, forbids := range []bool{false, true} {
		t.Run(fmt.Sprintf("forbids=%v", forbids), func(t *testing.T) {
			t.Parallel()
			g := newRegistry(t)
			b := g.image(t, gzipped, tarOf(t, reg("x", "1")))
			g.answer(func(w http.ResponseWriter, r *http.Request) bool {
				user, password, _ := r.BasicAuth()
				switch {
				case user == "right" && password == "p":
					return false
				case user == "other" && forbids:
					w.WriteHeader(http.StatusForbidden)
				default:
					w.Header().Add("WWW-Authenticate", `Basic realm="x"`)
					w.WriteHeader(http.StatusUnauthorized)
				}
				return true
			})
			s := newStore(t, g, nil)
			by := func(logins ...Login) Access { return Access{Logins: map[string][]Login{g.host(): logins}} }
			other := Login{User: "other", Password: "q-secret", Of: "secret a/pull"}
			_, err := s.EnsureBy(t.Context(), b.ref, by(other, Login{Of: "secret ops/pull", Err: errors.New("no identity")}))
			if !errors.Is(err, ErrUnauthorized) || strings.Contains(err.Error(), "q-secret") || !strings.Contains(err.Error(), "(secret a/pull)") || !strings.Contains(err.Error(), "secret ops/pull cannot be used: no identity") {
				t.Errorf("with no good login: %v", err)
			}
			if _, err := s.EnsureBy(t.Context(), b.ref, by(other, Login{User: "right", Password: "p"})); err != nil {
				t.Errorf("with a good one after another: %v", err)
			}
		})
	}
}

// TestAccessMirrors: the cell's mirrors are asked first, with their own logins, unless the
// agent has some itself.
func TestAccessMirrors(t *testing.T) {
	t.Parallel()
	g, m := newRegistry(t), newRegistry(t)
	b := g.image(t, gzipped, tarOf(t, reg("x", "1")))
	m.blobs = g.blobs
	m.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if user, _, _ := r.BasicAuth(); user == "m" {
			return false
		}
		w.Header().Add("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	by := Access{Mirrors: map[string][]string{g.host(): {m.host()}}, Logins: map[string][]Login{m.host(): {{User: "m", Password: "p"}}}}
	loopback := func(c *Config) { c.InsecureLoopback = true }
	if _, err := newStore(t, g, loopback).EnsureBy(t.Context(), b.ref, by); err != nil || g.asked("") != 0 {
		t.Errorf("%v; the registry was asked %d times", err, g.asked(""))
	}
	asked := m.asked("")
	own := func(c *Config) { c.InsecureLoopback, c.Mirrors = true, map[string][]string{g.host(): {"127.0.0.1:1"}} }
	if _, err := newStore(t, g, own).EnsureBy(t.Context(), b.ref, by); err != nil || m.asked("") != asked {
		t.Errorf("%v; the cell's mirror was asked %d times", err, m.asked("")-asked)
	}
}

func TestParseLogin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Login{
		"robot:a:b\n":                          {User: "robot", Password: "a:b"},
		"_json_key:{\n\"private\": \"x\"\n}\n": {User: "_json_key", Password: "{\n\"private\": \"x\"\n}"},
		`{"auths": {"r.example": {"auth": "bWU6cA=="}, "other": {"auth": "eDp5"}}}`: {User: "me", Password: "p"},
	} {
		if got, err := ParseLogin([]byte(text), "r.example"); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "hunter2", ":hunter2", "me:", "{hunter2", `{"auths": {"other": {"auth": "eDp5"}}}`} {
		if _, err := ParseLogin([]byte(text), "r.example"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
