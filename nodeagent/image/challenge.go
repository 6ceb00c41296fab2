package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// challenge is one way to authenticate that a registry names.
type challenge struct {
	scheme string // lower case
	params map[string]string
}

// challenges reads WWW-Authenticate headers (RFC 9110 §11.6.1).
func challenges(h http.Header) []challenge {
	var out []challenge
	for _, line := range h.Values("WWW-Authenticate") {
		for line = strings.TrimLeft(line, " ,"); line != ""; line = strings.TrimLeft(line, " ,") {
			word := line
			if i := strings.IndexAny(line, " =,"); i >= 0 {
				word = line[:i]
			}
			rest := strings.TrimLeft(line[len(word):], " ")
			if !strings.HasPrefix(rest, "=") { // a scheme
				out = append(out, challenge{strings.ToLower(word), map[string]string{}})
				line = rest
				continue
			}
			var value string
			value, line = param(strings.TrimLeft(rest[1:], " "))
			if len(out) > 0 {
				out[len(out)-1].params[strings.ToLower(word)] = value
			}
		}
	}
	return out
}

// param reads the value of a parameter, quoted or not, and returns what follows.
func param(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		if i := strings.IndexAny(s, " ,"); i >= 0 {
			return s[:i], s[i:]
		}
		return s, ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}

// grant is a header that a host accepts for a repository.
type grant struct {
	header string
	until  time.Time // zero: for ever
}

// grantKey is what a grant is for.
type grantKey struct{ host, repo, user, password string }

// asking is who asks for what of a host.
type asking struct {
	repo string
	as   *Login // of nobody without a User
}

// granted returns what a host has accepted of a login for a repository, and may still; the zero
// grant if there is nothing.
func (c *client) granted(h host, a asking) grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.grants[grantKey{h.url, a.repo, a.as.User, a.as.Password}]
	if !g.until.IsZero() && !c.now().Before(g.until) {
		return grant{}
	}
	return g
}

// grant has the next ones use what a host has accepted.
func (c *client) grant(h host, a asking, g grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants[grantKey{h.url, a.repo, a.as.User, a.as.Password}] = g
}

// authorize answers the challenges of a host for a repository.
func (c *client) authorize(ctx context.Context, h host, a asking, header http.Header) (grant, error) {
	if a.as.Err != nil {
		return grant{}, fail(ErrUnauthorized, h.registry, "it wants credentials, and %s cannot be used: %w", a.as.Of, a.as.Err)
	}
	ok := a.as.User != ""
	all := challenges(header)
	for _, ch := range all {
		if ch.scheme == "bearer" {
			return c.token(ctx, h, a, ch)
		}
	}
	for _, ch := range all {
		if ch.scheme == "basic" && ok {
			return grant{header: a.as.basic()}, nil
		}
	}
	if !ok {
		return grant{}, fail(ErrUnauthorized, h.registry, "it wants credentials, and none are configured for it")
	}
	return grant{}, fail(ErrUnauthorized, h.registry, "it refuses the credentials of %q%s, or accepts neither Bearer nor Basic", a.as.User, a.as.name())
}

// largestToken bounds the answer of a token server, in bytes.
const largestToken = 1 << 20

// token gets a token from the server that a challenge names. The credentials of the
// registry are sent to that server, as the protocol wants, but over https only, and
// never to where it redirects.
func (c *client) token(ctx context.Context, h host, a asking, ch challenge) (grant, error) {
	realm, err := url.Parse(ch.params["realm"])
	if err != nil || realm.Host == "" || realm.Scheme != "https" && (realm.Scheme != "http" || !h.insecure) {
		return grant{}, fail(ErrUnauthorized, h.registry, "its token server %.200q is no https URL", ch.params["realm"])
	}
	q := realm.Query()
	if s := ch.params["service"]; s != "" {
		q.Set("service", s)
	}
	scope := ch.params["scope"]
	if scope == "" {
		scope = "repository:" + a.repo + ":pull"
	}
	q.Set("scope", scope)
	realm.RawQuery = q.Encode()
	header := http.Header{}
	if a.as.User != "" {
		header.Set("Authorization", a.as.basic())
	}
	of := fmt.Sprintf("%s, token server %s", h.registry, realm.Host)
	res, err := c.follow(ctx, request{of: of, url: realm, header: header, insecure: h.insecure, floor: c.floor})
	if err != nil {
		return grant{}, err
	}
	defer res.Body.Close()
	if err := c.refused(of, a.as, res); err != nil {
		return grant{}, err
	}
	var t struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, largestToken))
	if err != nil {
		return grant{}, err
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return grant{}, fail(ErrUnavailable, of, "its answer is no token: %w", err)
	}
	if t.Token == "" {
		t.Token = t.AccessToken
	}
	if t.Token == "" || strings.ContainsAny(t.Token, "\r\n") {
		return grant{}, fail(ErrUnauthorized, of, "its answer has no token")
	}
	if t.ExpiresIn <= 0 {
		t.ExpiresIn = 60 // what the specification says for those that say nothing
	}
	lives := min(t.ExpiresIn, 24*60*60)
	return grant{header: "Bearer " + t.Token, until: c.now().Add(time.Duration(lives) * time.Second * 9 / 10)}, nil
}
