package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/nodeagent/image/imagetest"
)

// TestRegistryAuthFile: a registry that asks for a login gets that of the file, as it is at
// that time.
func TestRegistryAuthFile(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root, as images do")
	}
	g := imagetest.NewRegistry(t)
	name := g.Add("team/app", imagetest.Of(t, imagetest.Busybox(t, nil), imagetest.Settings{}))
	host, _, _ := strings.Cut(name, "/")
	g.Require("robot", "first")

	f := &imageFlags{age: time.Hour, authFile: filepath.Join(t.TempDir(), "auth.json")}
	write := func(password string, mode os.FileMode) {
		t.Helper()
		text := fmt.Sprintf(`{"auths": {%q: {"username": "robot", "password": %q}}}`, host, password)
		if err := errors.Join(os.WriteFile(f.authFile, []byte(text), mode), os.Chmod(f.authFile, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.check(); err == nil || !strings.Contains(err.Error(), "--registry-auth-file") {
		t.Errorf("a file that is not there: %v", err)
	}
	write("first", 0o644)
	if err := f.check(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
	write("wrong", 0o600)
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	images, err := openImages(t.TempDir(), f, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := images.Bring(t.Context(), name, nil); !errors.Is(err, image.ErrUnauthorized) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %v", err)
	}
	write("first", 0o600)
	if _, err := images.Bring(t.Context(), name, nil); err != nil {
		t.Errorf("after the password was corrected: %v", err)
	}
}
