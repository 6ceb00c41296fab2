package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogins(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	if _, err := ReadLogins(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"auths": {"quay.io": {"auth": "cXVheTpw"`)
	if _, err := ReadLogins(file); err == nil || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "cXV") {
		t.Errorf("half a file: %v", err)
	}
	write(`{"auths": {
		"https://index.docker.io/v1/": {"auth": "aHViOnA="}, "quay.io": {"auth": "cXVheTpw"}, "bad": {"auth": "="}, "helper": {},
		"plain": {"username": "me", "password": "a:b"}
	}}`)
	l, err := ReadLogins(file)
	if err != nil {
		t.Fatal(err)
	}
	for registry, want := range map[string]string{"docker.io": "hub p", "quay.io": "quay p", "plain": "me a:b", "bad": "", "helper": "", "other": ""} {
		user, password, ok := l.Of(registry)
		if got := strings.TrimSpace(user + " " + password); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t, want %q", registry, got, ok, want)
		}
	}
	if _, _, ok := (&Logins{}).Of("quay.io"); ok {
		t.Error("an empty Logins has a login")
	}
}
