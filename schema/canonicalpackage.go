package schema

import (
	"bytes"
	"slices"
)

// A package may have tens of megabytes of jobs, and package encoding/json keeps several times as much for a moment, and
// a buffer of that size for later. So the jobs of a large one are encoded one by one.

const (
	// manyJobs is how many jobs a package has at the least for that.
	manyJobs = 64
	// sampled is how many of them say how long the others will be.
	sampled = 16
)

// canonical returns the canonical JSON of p.
func (p *Package) canonical() []byte {
	if p == nil || len(p.Objects.Jobs) < manyJobs {
		return canonicalized(p)
	}
	without, jobs := *p, p.Objects.Jobs
	without.Objects.Jobs = nil
	rest := canonicalized(&without)
	at := memberOf(rest, memberOf(rest, 0, "objects"), "jobs")
	var plain bytes.Buffer
	c := canonicalizer{out: append(slices.Clip(rest[:at]), '[')}
	for i := range jobs {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		plain.Reset()
		encodeTo(&plain, &jobs[i])
		c.in = plain.Bytes()
		c.value(0)
		if i == sampled {
			each := (len(c.out) - at) / i
			c.out = slices.Grow(c.out, each*(len(jobs)-i)*9/8+len(rest))
		}
	}
	c.out = append(c.out, ']')
	return append(c.out, rest[at+len("null"):]...)
}

// memberOf returns where the value of a member of an object begins that is at i in canonical JSON. It has the member.
func memberOf(doc []byte, i int, name string) int {
	quoted := append(encode(name), ':')
	for depth := 0; ; i++ {
		switch doc[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			if depth == 1 && bytes.HasPrefix(doc[i:], quoted) {
				return i + len(quoted)
			}
			for i++; doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
		}
	}
}
