package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// logins are what docker login has stored: by registry, base64 of user:password.
type logins struct {
	Auths map[string]struct {
		Auth string `json:"auth"`
	} `json:"auths"`
}

// readLogins reads the file that docker login writes; none if there is no such file.
func readLogins() (*logins, error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".docker")
	}
	name := filepath.Join(dir, "config.json")
	l := &logins{}
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || dir == "" {
		return l, nil
	}
	if err == nil {
		err = json.Unmarshal(b, l)
	}
	if err != nil {
		return nil, &failure{code: exitInvalid, err: fmt.Errorf("%s: %w", name, err), hint: "DOCKER_CONFIG names another directory than ~/.docker"}
	}
	return l, nil
}

// of returns the user and password for a registry.
func (l *logins) of(registry string) (user, password string, ok bool) {
	names := []string{registry, "https://" + registry, "https://" + registry + "/v1/"}
	if registry == "docker.io" {
		names = append(names, "https://index.docker.io/v1/")
	}
	for _, name := range names {
		b, err := base64.StdEncoding.DecodeString(l.Auths[name].Auth)
		if user, password, ok = strings.Cut(string(b), ":"); err == nil && ok {
			return user, password, true
		}
	}
	return "", "", false
}
