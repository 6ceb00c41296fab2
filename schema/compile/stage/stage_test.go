package stage

import (
	"bytes"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestStages: each stage has its own limit, the last a part of it, and only who exceeds it in a policy is named.
func TestStages(t *testing.T) {
	t.Parallel()
	policy := Policy{Position: schema.Position{Path: "cells/p.cue", Line: 3, Column: 1}, Field: "_policy.a", Object: "job.b"}
	type step struct {
		to   Stage
		cpu  time.Duration
		size uint64
	}
	for name, tt := range map[string]struct {
		steps       []step
		cpu, allocs bool
		want        Policy
	}{
		"within all":       {[]step{{Package, time.Second, 90}, {Policies, time.Second, 90}, {Heavy, 100 * time.Millisecond, 9}}, false, false, policy},
		"the package":      {[]step{{Package, 2 * time.Second, 0}}, true, false, Policy{}},
		"package in parts": {[]step{{Package, 600 * time.Millisecond, 0}, {Policies, 0, 0}, {Package, 600 * time.Millisecond, 0}}, true, false, Policy{}},
		"the policies":     {[]step{{Package, time.Second, 0}, {Policies, 1001 * time.Millisecond, 0}}, true, false, policy},
		"what they make":   {[]step{{Policies, 0, 101}}, false, true, policy},
		"a heavy one":      {[]step{{Policies, time.Second, 0}, {Heavy, 101 * time.Millisecond, 0}}, true, false, policy},
	} {
		var used Usage
		s := New(func() Usage { return used }, func() bool { return true }, Usage{CPU: time.Second, Allocs: 100}, 10)
		for _, step := range tt.steps {
			s.Enter(step.to)
			s.At(policy)
			used = used.Plus(Usage{CPU: step.cpu, Allocs: step.size})
		}
		var out bytes.Buffer
		cpu, allocs := s.Exceeded(&out)
		got, _ := Read(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
		if cpu != tt.cpu || allocs != tt.allocs || got != tt.want {
			t.Errorf("%s: %v, %v, at %+v, want %v, %v, %+v", name, cpu, allocs, got, tt.cpu, tt.allocs, tt.want)
		}
	}
	if _, ok := Read([]byte("fatal error: stack overflow")); ok {
		t.Error("another line is taken for one")
	}
}

// TestFull: a policy is named when memory is full only if there was little in it before.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, little := range []bool{true, false} {
		s := New(func() Usage { return Usage{} }, func() bool { return little }, Usage{}, 0)
		s.Enter(Policies)
		s.At(Policy{Field: "_policy.a"})
		var out bytes.Buffer
		if s.Full(&out); (out.Len() > 0) != little {
			t.Errorf("with little %v it writes %q", little, out.String())
		}
	}
}
