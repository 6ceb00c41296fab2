package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
)

// Access is how registries are reached for one pull, beside what Config says. Its zero value
// adds nothing.
type Access struct {
	// Mirrors are hosts that are asked before a registry, in this order, by registry. Those
	// of Config come instead, for a registry that has any there.
	Mirrors map[string][]string
	// Logins are those that a registry or mirror is given that asks for a user, by its name:
	// the next one if it refuses the one before. Config.Credentials come instead.
	Logins map[string][]Login
}

// Login is a user of a registry.
type Login struct {
	User, Password string
	// Of says whose it is, for errors: "secret ops/pull".
	Of string
	// Err says why nobody can log in with it; nil if one can.
	Err error
}

// basic returns the header Authorization for l.
func (l *Login) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(l.User+":"+l.Password))
}

// name says which login it is, for errors: nothing of its password.
func (l *Login) name() string {
	if l.Of == "" {
		return ""
	}
	return " (" + l.Of + ")"
}

// errLogin is what is wrong with the text of a login.
var errLogin = errors.New("it is neither USER:PASSWORD nor the JSON that docker login writes with an entry for the registry")

// ParseLogin reads what a secret holds for a registry: USER:PASSWORD, of which a newline at
// the end is left out, or the text of a file as ReadLogins takes it. The error has nothing of
// the text.
func ParseLogin(text []byte, registry string) (Login, error) {
	s := strings.TrimSuffix(string(text), "\n")
	var l Logins
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		if json.Unmarshal(text, &l) != nil {
			return Login{}, errLogin
		}
		user, password, ok := l.Of(registry)
		if !ok {
			return Login{}, errLogin
		}
		return Login{User: user, Password: password}, nil
	}
	user, password, ok := strings.Cut(s, ":")
	if !ok || user == "" || password == "" || strings.ContainsAny(user, "\r\n") {
		return Login{}, errLogin
	}
	return Login{User: user, Password: password}, nil
}
