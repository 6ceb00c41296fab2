package valid

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/sops"
)

const (
	maxSecrets     = 64
	maxSealed      = 256 << 10 // bytes of a ciphertext: 64 KiB of plaintext, armored, for many recipients
	maxSealedBytes = 1 << 20   // of the ciphertexts of a job together, since each machine is sent them
	maxSecretKey   = 255
)

// matchRecipient takes what secrets can be sealed for.
func matchRecipient(s string) string {
	if _, err := sealed.ParseRecipient(s); err != nil {
		return `an age recipient, as in "age1…": muster secret keys FILE prints those of a file of identities`
	}
	return ""
}

// matchMode takes modes of files that nobody can write to.
func matchMode(s string) string {
	const want = `a mode in octal without the right to write, such as "0400" or "0444"`
	if len(s) != 4 || s[0] != '0' || s[1] == '0' {
		return want
	}
	for _, c := range s[1:] {
		if c != '0' && c != '4' && c != '5' {
			return want
		}
	}
	return ""
}

// secretProblems checks what ties the fields of a secret together, and its ciphertext.
func secretProblems(out map[string]any) (found problems) {
	text, isAge := out["age"].(string)
	document, isSOPS := out["sops"].(string)
	_, keyed := out["key"].(string)
	const write = `write age: _text @embed(file="NAME.age", type=text), and make the file with muster secret edit NAME.age`
	switch {
	case isAge && isSOPS:
		found.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"sops"}, Key: true, Message: `a secret with "age" cannot also have "sops"`, Expected: "one of age, sops"})
	case !isAge && !isSOPS:
		found.add(Problem{Rule: schema.RuleMissingField, Path: []string{"age"}, Missing: true, Message: `required field "age", or "sops", is missing`, Expected: "one of age, sops", Hint: write})
	case isAge && keyed:
		found.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"key"}, Key: true, Message: "an age file holds one secret, and has no keys", Expected: "no key", Hint: "remove key, or use sops"})
	case isAge:
		found.age(text, out)
	default:
		if err := sops.Inspect(document); err != nil {
			message, hint := schema.HintOf(err)
			found.add(Problem{Rule: schema.RuleSecret, Path: []string{"sops"}, Message: message, Expected: "a SOPS file with age recipients", Hint: hint})
		}
	}
	return found
}

// age checks an age file, and whose it is.
func (p *problems) age(text string, out map[string]any) {
	h, err := sealed.Inspect(text)
	if err != nil {
		message, hint := schema.HintOf(err)
		p.add(Problem{Rule: schema.RuleSecret, Path: []string{"age"}, Message: message, Expected: "an armored age file", Hint: hint})
		return
	}
	user, _ := out["user"].(string)
	cell, _ := out["cell"].(string)
	if of := (&schema.Secret{User: user, Cell: cell}).Owner(); h.Owner != "" && h.Owner != of {
		p.add(Problem{
			Rule: schema.RuleSecret, Path: []string{"age"}, Message: fmt.Sprintf("the secret is sealed for %s, and not for %s", short(h.Owner), of), Expected: "a secret of the same user and cell",
			Hint: "who knows it can seal it again: muster secret edit --user " + user,
		})
	}
}

// taskSecretProblems checks how a task gets its secrets.
func taskSecretProblems(task map[string]any) (found problems) {
	secrets, _ := task["secrets"].(map[string]any)
	env, _ := task["env"].(map[string]any)
	files, variables := map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		given, ok := secrets[name].(map[string]any)
		if !ok {
			continue
		}
		at := func(field string) []string { return []string{"task", "secrets", name, field} }
		text := func(field string) string { s, _ := given[field].(string); return s }
		s := schema.TaskSecret{File: text("file"), Env: text("env"), OnChange: schema.OnChange(text("onChange"))}
		file := s.Path(name)
		if other, twice := files[file]; twice && file != "" {
			found.add(Problem{Rule: schema.RuleDuplicate, Path: []string{"task", "secrets", name}, Key: true, Message: fmt.Sprintf("secret %q is put into the same file", other), Expected: "another file"})
		}
		files[file] = name
		if s.Env != "" {
			if _, twice := env[s.Env]; twice {
				found.add(Problem{Rule: schema.RuleDuplicate, Path: at("env"), Message: fmt.Sprintf("task.env has %q, too", s.Env), Expected: "another variable"})
			} else if other, twice := variables[s.Env]; twice {
				found.add(Problem{Rule: schema.RuleDuplicate, Path: at("env"), Message: fmt.Sprintf("secret %q is put into the same variable", other), Expected: "another variable"})
			}
			variables[s.Env] = name
		}
		if _, set := given["mode"]; set && file == "" {
			found.add(Problem{Rule: schema.RuleNoEffect, Path: at("mode"), Key: true, Message: "there is no file", Expected: "file beside env", Hint: fmt.Sprintf("write file: %q, or remove mode", name)})
		}
		if s.OnChange == schema.ChangeSignal && file == "" {
			found.add(Problem{Rule: schema.RuleNoEffect, Path: at("onChange"), Message: "the environment of a running task does not change", Expected: `"restart" or "none"`, Hint: "or have the secret in a file"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				found.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"task", "secrets", files[name]}, Key: true, Message: fmt.Sprintf("%q is also a file", short(dir)), Expected: "a directory, or another name"})
			}
		}
	}
	return found
}

// secret is a declared secret, as jobs get it.
type secret struct {
	sealed schema.SealedSecret
	opened schema.Opened
}

func secretsOf(packages []*schema.Package) map[schema.ObjectKey]secret {
	out := map[schema.ObjectKey]secret{}
	for _, p := range packages {
		for i := range p.Objects.Secrets {
			s := &p.Objects.Secrets[i]
			key := schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}
			opened := p.Opened[key]
			out[key] = secret{schema.SealedSecret{Version: opened.Version, Age: s.Age, SOPS: s.SOPS, Key: s.Key}, opened}
		}
	}
	return out
}

// give has a job have a secret that it names. It returns what keeps it from that, nil if
// nothing does.
func (s secret) give(r *schema.Reference, j *schema.Job) *schema.Diagnostic {
	name := r.To.Declared()
	d := &schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleSecret, Position: r.At, Field: r.From.Field() + "." + r.Field,
	}
	if s.opened.Trouble != "" {
		d.Message, d.Expected, d.Hint = fmt.Sprintf("secret %q cannot be opened: %s", name, s.opened.Trouble), "a secret that is sealed for the cell", s.opened.Hint
		return d
	}
	j.Task.Secrets = maps.Clone(j.Task.Secrets)
	given := j.Task.Secrets[name]
	given.Sealed = &s.sealed
	j.Task.Secrets[name] = given
	total := 0
	for _, o := range j.Task.Secrets {
		if o.Sealed != nil {
			total += len(o.Sealed.Age) + len(o.Sealed.SOPS)
		}
	}
	if total > maxSealedBytes {
		d.Rule = schema.RuleOutOfRange
		d.Message, d.Expected = fmt.Sprintf("the job's secrets have %d bytes together as they are sealed", total), fmt.Sprintf("at most %d", maxSealedBytes)
		d.Hint = "have fewer, or smaller ones; of a SOPS file, each has the whole"
		return d
	}
	return nil
}
