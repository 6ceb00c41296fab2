package schema

import (
	"maps"
	"slices"
)

// Secret is something that tasks of one user in one cell may know, and nobody else. It
// is in the repository as ciphertext: one of Age and SOPS.
type Secret struct {
	Name string `json:"name"`
	User string `json:"user"`
	Cell string `json:"cell"`
	// Age is an armored age file.
	Age string `json:"age,omitempty"`
	// SOPS is the text of a whole SOPS file.
	SOPS string `json:"sops,omitempty"`
	// Key is the path of one value in the document of SOPS, such as db.password; "" is
	// the whole document.
	Key string `json:"key,omitempty"`
	// Registry is the registry, as HOST[:PORT], that is asked with the secret for what jobs of
	// the user need; "" if it is no login.
	Registry string `json:"registry,omitempty"`
}

// ID returns the secret's full name, cell/user/name.
func (s *Secret) ID() string { return s.Owner() + "/" + s.Name }

// Owner returns cell/user: what a sealed secret says of whose it is.
func (s *Secret) Owner() string { return s.Cell + "/" + s.User }

// Sealed returns the secret as it is in the repository.
func (s *Secret) Sealed() *SealedSecret { return &SealedSecret{Age: s.Age, SOPS: s.SOPS, Key: s.Key} }

// TaskSecret is how a task gets a secret that its job names.
type TaskSecret struct {
	// File is the path of a file in SecretsVariable. "" is the secret's name, unless
	// Env is set: then there is no file.
	File string `json:"file,omitempty"`
	// Env is the environment variable that holds the secret; "" is none.
	Env string `json:"env,omitempty"`
	// Mode is that of the file, in octal; "" is DefaultSecretMode.
	Mode string `json:"mode,omitempty"`
	// OnChange is what becomes of a running task when the plaintext changes.
	OnChange OnChange `json:"onChange,omitempty"`
	Signal   string   `json:"signal,omitempty"` // "" is DefaultChangeSignal
	// Sealed is the secret itself: nil in a Package, where a Reference stands for it.
	Sealed *SealedSecret `json:"sealed,omitempty"`
}

// DefaultSecretMode is the mode of a secret's file: its task alone may read it.
const DefaultSecretMode = "0400"

// SecretsVariable is the environment variable that holds the path of the directory with
// a task's secrets.
const SecretsVariable = "MUSTER_SECRETS_DIR"

// Path returns the path of the file in the directory of secrets, of the secret with
// the given name; "" if it has none.
func (s *TaskSecret) Path(name string) string {
	if s.File == "" && s.Env == "" {
		return name
	}
	return s.File
}

// SealedSecret is a secret as it travels with the data of a job.
type SealedSecret struct {
	// Version changes with the plaintext and with nothing else: a keyed digest. "" in
	// what no master with the cell's identity has taken.
	Version string `json:"version,omitempty"`
	// Age, SOPS and Key are those of the Secret.
	Age  string `json:"age,omitempty"`
	SOPS string `json:"sops,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Unsealed returns o with jobs that name their secrets and do not hold them, as they are
// declared.
func (o *Objects) Unsealed() *Objects {
	out := *o
	o = &out
	o.Jobs = slices.Clone(o.Jobs)
	for i := range o.Jobs {
		secrets := maps.Clone(o.Jobs[i].Task.Secrets)
		for name, s := range secrets {
			s.Sealed = nil
			secrets[name] = s
		}
		o.Jobs[i].Task.Secrets = secrets
	}
	return o
}

// SecretsRecord is what the store keeps of a cell's secrets beside the packages.
type SecretsRecord struct {
	// VersionKey is that of Compiled.
	VersionKey string `json:"versionKey"`
}

// HasSecrets is the attribute of machines that can hold secrets: "true" or "false".
const HasSecrets = "secrets"

// runSecret is what of a TaskSecret only a restart can change.
type runSecret struct {
	File    string `json:"file,omitempty"`
	Env     string `json:"env,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Version string `json:"version,omitempty"`
}

// run returns what of s, with the given name, only a restart can change.
func (s *TaskSecret) run(name string) runSecret {
	r := runSecret{File: s.Path(name), Env: s.Env}
	if s.Mode != DefaultSecretMode {
		r.Mode = s.Mode
	}
	if !s.OnChange.InPlace() {
		r.Version = s.Content()
	}
	return r
}

// Content identifies the plaintext, as far as that is known: by its Version, and else by
// the ciphertext.
func (s *TaskSecret) Content() string {
	switch {
	case s.Sealed == nil:
		return ""
	case s.Sealed.Version != "":
		return s.Sealed.Version
	}
	return "sealed:" + string(DigestOf(s.Sealed))
}

// runSecrets returns what of a task's secrets only a restart can change; nil of none.
func runSecrets(secrets map[string]TaskSecret) map[string]runSecret {
	if len(secrets) == 0 {
		return nil
	}
	out := make(map[string]runSecret, len(secrets))
	for name, s := range secrets {
		out[name] = s.run(name)
	}
	return out
}

// Opened is what a master that can open a secret says of it.
type Opened struct {
	Version string `json:"version,omitempty"` // as in SealedSecret
	// Trouble says why it could not be opened; Hint what to do.
	Trouble string `json:"trouble,omitempty"`
	Hint    string `json:"hint,omitempty"`
}
