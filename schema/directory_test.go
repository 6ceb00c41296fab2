package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestDirectoryDigest fixes what masters and agents of different releases must agree on.
func TestDirectoryDigest(t *testing.T) {
	t.Parallel()
	e := DirectoryEntry{Tasks: &DirectoryTasks{
		User: "ann", Job: "web", Part: 1, Labels: map[string]string{"b": "2", "a": "1"},
		Tasks: []DirectoryTask{{Index: 64, Machine: "m1", Address: netip.MustParseAddr("10.1.2.3"), Ports: NewPorts(Port{"http", 80}), Ready: true}, {Index: 65, Machine: "m2"}},
	}}
	if got, want := fmt.Sprint(e.Key(), " ", DirectoryShard(e.Key())), "tasks/ann/web/1 20"; got != want {
		t.Errorf("key and shard: %s, want %s", got, want)
	}
	text, err := json.Marshal(e.Digest())
	if want := `"620ad493327f8e9e3c56b6a6f919b8e6"`; err != nil || string(text) != want {
		t.Errorf("digest %s of %s (error %v), want %s", text, Canonical(e), err, want)
	}
	var back DirectoryDigest
	if err := json.Unmarshal(text, &back); err != nil || back != e.Digest() {
		t.Errorf("read again: %v, %v", back, err)
	}
	if err := back.UnmarshalText([]byte("00")); err == nil {
		t.Error("a digest of two digits was read")
	}
	var read DirectoryEntry
	if err := json.Unmarshal(Canonical(e), &read); err != nil || read.Digest() != e.Digest() {
		t.Errorf("an entry that was written and read has another digest (error %v)", err)
	}
}

func TestDirectoryTaskAddresses(t *testing.T) {
	t.Parallel()
	v4, v6, other := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.1.2.4")
	for _, tt := range []struct {
		task DirectoryTask
		want []netip.Addr
	}{{DirectoryTask{}, nil}, {DirectoryTask{Address: v4}, []netip.Addr{v4}}, {DirectoryTask{Address: v6}, []netip.Addr{v6}}, {DirectoryTask{Address: v4, Address6: v6}, []netip.Addr{v4, v6}}} {
		if got := slices.Collect(tt.task.Addresses()); !slices.Equal(got, tt.want) {
			t.Errorf("%v, want %v", got, tt.want)
		}
		for _, a := range []netip.Addr{v4, v6, other, {}} {
			if got, want := tt.task.At(a), slices.Contains(tt.want, a); got != want {
				t.Errorf("%v at %v: %v", tt.task, a, got)
			}
		}
	}
}

func TestDirectoryDigestSum(t *testing.T) {
	t.Parallel()
	full := DirectoryDigest{}
	for i := range full {
		full[i] = 0xff
	}
	one := DirectoryDigest{15: 1}
	if got := full.Plus(one); got != (DirectoryDigest{}) {
		t.Errorf("2^128 - 1 and 1: %x", got)
	}
	if got := (DirectoryDigest{}).Minus(one); got != full {
		t.Errorf("0 without 1: %x", got)
	}
	a, b := DirectoryDigest{7: 0xff, 8: 0xff, 3: 9}, DirectoryDigest{7: 1, 8: 0x80}
	if got := a.Plus(b); got != b.Plus(a) || got.Minus(a) != b || got.Minus(b) != a {
		t.Errorf("sum %x", got)
	}
}

// TestDirectoryPolicy: an agent of a release that knows no ports of policies reads one that admits nobody whom
// the job's own does not.
func TestDirectoryPolicy(t *testing.T) {
	t.Parallel()
	everywhere, atHTTP := PolicyPeer{Users: []string{"ops"}}, PolicyPeer{Users: []string{AnyUser}, Ports: []string{"http"}}
	for _, c := range []struct {
		of   *Policy
		want string // what it reads
	}{
		{nil, "null"},
		{&Policy{}, `{"from":null}`},
		{&Policy{From: []PolicyPeer{everywhere}}, `{"from":[{"users":["ops"]}]}`},
		{&Policy{From: []PolicyPeer{everywhere, atHTTP}}, `{"from":[{"users":["ops"]}]}`},
		{&Policy{From: []PolicyPeer{atHTTP}}, `{"from":null}`},
	} {
		is := DirectoryTasks{Policy: c.of, PortPolicy: c.of}
		is.SetPolicy(c.of)
		var earlier struct {
			Policy *struct {
				From []struct {
					Users []string `json:"users"`
				} `json:"from"`
			} `json:"policy"`
		}
		var now DirectoryTasks
		if err := errors.Join(json.Unmarshal(Canonical(is), &earlier), json.Unmarshal(Canonical(is), &now)); err != nil {
			t.Fatal(err)
		}
		if got := strings.ToLower(string(Canonical(earlier.Policy))); got != c.want {
			t.Errorf("of %v it reads %s, want %s", c.of, got, c.want)
		}
		if now.PolicyOfJob().String() != c.of.String() {
			t.Errorf("of %v is read %v", c.of, now.PolicyOfJob())
		}
	}
}
