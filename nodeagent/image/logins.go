package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Logins are what docker login stores in its config.json, and others in files of the same
// form: users and passwords by registry. A Logins is not written to after ReadLogins.
type Logins struct {
	Auths map[string]login `json:"auths"` // by registry
}

// login is the entry of a registry: base64 of user:password, or both in clear.
type login struct {
	Auth     string `json:"auth"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// ReadLogins reads such a file. What programs of docker would have to be asked for
// (credsStore, credHelpers) is not in it, and not found. Errors are those of the file
// system, or of its JSON without a part of its text.
func ReadLogins(file string) (*Logins, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var l Logins
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, fmt.Errorf("%s: want JSON as docker login writes it: %w", file, err)
	}
	return &l, nil
}

// Of returns the user and password for a registry; false if there are none. It is a
// Config.Credentials.
func (l *Logins) Of(registry string) (user, password string, ok bool) {
	names := []string{registry, "https://" + registry, "https://" + registry + "/v1/", "https://" + registry + "/v2/"}
	if registry == dockerHub {
		names = append(names, "index.docker.io", "https://index.docker.io/v1/")
	}
	for _, name := range names {
		entry := l.Auths[name]
		if entry.Username != "" && entry.Password != "" {
			return entry.Username, entry.Password, true
		}
		b, err := base64.StdEncoding.DecodeString(entry.Auth)
		if user, password, ok = strings.Cut(string(b), ":"); err == nil && ok {
			return user, password, true
		}
	}
	return "", "", false
}
