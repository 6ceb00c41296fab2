package sops_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/sops"
)

// The files of testdata were made by sops 3.13.3, of the .plain beside them, for the
// identity there.

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func identities(t *testing.T) sealed.Identities {
	t.Helper()
	ids, err := sealed.ParseIdentities([]byte(read(t, "identity")))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// TestOpenValues: one value of each type, in each format and with each way to say what is
// encrypted.
func TestOpenValues(t *testing.T) {
	t.Parallel()
	ids := identities(t)
	for _, tt := range []struct{ file, key, want string }{
		{"yaml.enc", "db.password", "hunter2"},
		{"yaml.enc", "db.port", "5432"},
		{"yaml.enc", "db.ratio", "1.5"},
		{"yaml.enc", "db.on", "true"},
		{"yaml.enc", "db.empty", ""},
		{"yaml.enc", "db.when", "2026-11-23T10:00:00Z"},
		{"yaml.enc", "db.hosts.1", "two"},
		{"yaml.enc", "db.note_unencrypted", "seen"},
		{"yaml.enc", "multi", "first\nsecond\n"},
		{"regex.enc", "db.password", "hunter2"},
		{"regex.enc", "db.port", "5432"},
		{"json.enc", "db.password", "hunter2 <&>"},
		{"json.enc", "db.port", "5432"},
		{"json.enc", "db.on", "false"},
		{"json.enc", "db.hosts.1.x", "two"},
		{"env.enc", "PASSWORD", "hunter2"},
		{"env.enc", "MULTI", "a\nb"},
		{"env.enc", "", "PASSWORD=hunter2\nMULTI=a\\nb\nEMPTY=\n"},
		{"bin.enc", "", "any \x01 bytes\nhunter2\n"},
		{"json.enc", "", "{\n\t\"muster_owner\": \"local/search\",\n\t\"db\": {\n\t\t\"password\": \"hunter2 <&>\",\n\t\t\"port\": 5432,\n\t\t\"ratio\": 1.5,\n\t\t\"on\": false,\n\t\t\"hosts\": [\n\t\t\t\"one\",\n\t\t\t{\n\t\t\t\t\"x\": \"two\"\n\t\t\t}\n\t\t]\n\t}\n}\n"},
	} {
		text := read(t, tt.file)
		if err := sops.Inspect(text); err != nil {
			t.Errorf("%s: %v", tt.file, err)
		}
		got, err := sops.Open(text, tt.key, ids.Open)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s %q: %q, %v; want %q", tt.file, tt.key, got, err, tt.want)
		}
	}
	whole, err := sops.Open(read(t, "yaml.enc"), "", ids.Open)
	if err != nil || !strings.Contains(string(whole), "password: hunter2\n") || !strings.Contains(string(whole), "nothing: null\n") || strings.Contains(string(whole), "sops") {
		t.Errorf("whole: %s, %v", whole, err)
	}
}

// TestOwner: whose a document is counts only if that is part of what the key protects.
func TestOwner(t *testing.T) {
	t.Parallel()
	ids := identities(t)
	for file, want := range map[string]string{"yaml.enc": "local/search", "json.enc": "local/search", "env.enc": "", "regex.enc": ""} {
		if got, err := sops.Owner(read(t, file), ids.Open); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", file, got, err, want)
		}
	}
}

// TestRefused: what was changed, what is not for age, and what is no such file at all.
func TestRefused(t *testing.T) {
	t.Parallel()
	ids := identities(t)
	yaml, env := read(t, "yaml.enc"), read(t, "env.enc")
	swap := func(text, a, b string) string {
		out := strings.Replace(text, a, b, 1)
		if out == text {
			t.Fatalf("no %q", a)
		}
		return out
	}
	line := func(prefix string) string {
		for l := range strings.Lines(yaml) {
			if strings.HasPrefix(strings.TrimSpace(l), prefix) {
				_, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
				return value
			}
		}
		t.Fatalf("no line %q", prefix)
		return ""
	}
	for _, tt := range []struct{ name, text, want string }{
		{"a value in clear", swap(yaml, line("password"), "hunter3"), "in clear"},
		{"a value of another place", swap(yaml, line("password"), line("port")), "another place"},
		{"a value that is gone", swap(env, "MULTI=", "#"), "MAC"},
		{"another plain value", swap(yaml, "seen", "hidden"), "MAC"},
		{"no MAC", swap(env, "sops_mac=", "sops_mak="), "no SOPS file"},
		{"INI", read(t, "ini.enc"), "INI are not supported yet"},
		{"no SOPS file", "db:\n  password: hunter2\n", "no SOPS file"},
		{"a text", "hunter2", "no SOPS file"},
		{"empty", "", "no SOPS file"},
		{"JSON", `{"a": "hunter2"}`, "no SOPS file"},
		{"many aliases", bomb(), "no SOPS file"},
		{"deep", strings.Repeat(`{"a":`, 1000), "no SOPS file"},
		{"groups", swap(env, "sops_version", "sops_shamir_threshold=2\nsops_version"), "groups are not supported yet"},
		{"no age", swap(swap(env, "sops_age__list_0__map_enc", "sops_pgp__list_0__map_enc"), "sops_age__list_0__map_recipient", "sops_pgp__list_0__map_fp"), "no age recipient"},
	} {
		_, err := sops.Open(tt.text, "", ids.Open)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if _, err := sops.Open(yaml, "db.nothere", ids.Open); err == nil {
		t.Error("a value that is not there")
	}
	if _, err := sops.Open(yaml, "db", ids.Open); err == nil {
		t.Error("an object is no value")
	}
	if _, err := sops.Open(yaml, "", sealed.Identities{}.Open); !errors.Is(err, sealed.ErrNotFor) {
		t.Errorf("without the key: %v", err)
	}
}

// bomb is YAML that aliases make very large.
func bomb() string {
	text := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		a := "*a" + string(rune('0'+i))
		text += "a" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.Repeat(a+", ", 9) + a + "]\n"
	}
	return text + "sops: {mac: x}\n"
}

// FuzzInspect: any text is taken or refused.
func FuzzInspect(f *testing.F) {
	for _, name := range []string{"yaml.enc", "json.enc", "env.enc", "regex.enc", "ini.enc"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add(bomb())
	f.Fuzz(func(t *testing.T, text string) {
		if sops.Inspect(text) == nil {
			if _, err := sops.Open(text, "", sealed.Identities{}.Open); err == nil {
				t.Error("opened without a key")
			}
		}
	})
}
