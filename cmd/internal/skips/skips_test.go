package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// events is what go test -json prints for a package that passes with skipped
// tests, one that fails, and one without tests.
const events = `{"Action":"start","Package":"github.com/musterhq/muster/a"}
{"Action":"run","Package":"github.com/musterhq/muster/a","Test":"TestOne"}
{"Action":"output","Package":"github.com/musterhq/muster/a","Test":"TestOne","Output":"=== RUN   TestOne\n"}
{"Action":"output","Package":"github.com/musterhq/muster/a","Test":"TestOne","Output":"    a_test.go:1: no cgroups\n"}
{"Action":"skip","Package":"github.com/musterhq/muster/a","Test":"TestOne"}
{"Action":"output","Package":"github.com/musterhq/muster/a","Test":"TestTwo/sub","Output":"=== RUN   TestTwo/sub\n"}
{"Action":"skip","Package":"github.com/musterhq/muster/a","Test":"TestTwo/sub"}
{"Action":"pass","Package":"github.com/musterhq/muster/a","Test":"TestTwo"}
{"Action":"output","Package":"github.com/musterhq/muster/a","Output":"PASS\n"}
{"Action":"output","Package":"github.com/musterhq/muster/a","Output":"ok  \tgithub.com/musterhq/muster/a\t0.003s\n"}
{"Action":"pass","Package":"github.com/musterhq/muster/a"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Test":"TestBad/sub","Output":"=== RUN   TestBad/sub\n"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Test":"TestBad/sub","Output":"    b_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"github.com/musterhq/muster/b","Test":"TestBad/sub"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"github.com/musterhq/muster/b","Test":"TestBad"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Output":"FAIL\n"}
{"Action":"output","Package":"github.com/musterhq/muster/b","Output":"FAIL\tgithub.com/musterhq/muster/b\t0.003s\n"}
{"Action":"fail","Package":"github.com/musterhq/muster/b"}
{"ImportPath":"github.com/musterhq/muster/c","Action":"build-output","Output":"c.go:1: syntax error\n"}
{"Action":"output","Package":"github.com/musterhq/muster/d","Output":"?   \tgithub.com/musterhq/muster/d\t[no test files]\n"}
{"Action":"skip","Package":"github.com/musterhq/muster/d"}
not an event
`

const printed = "ok  \tgithub.com/musterhq/muster/a\t0.003s\n" +
	"    b_test.go:7: got 1, want 2\n" +
	"--- FAIL: TestBad (0.00s)\n" +
	"FAIL\n" +
	"FAIL\tgithub.com/musterhq/muster/b\t0.003s\n" +
	"c.go:1: syntax error\n" +
	"?   \tgithub.com/musterhq/muster/d\t[no test files]\n" +
	"not an event\n"

func TestReport(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		list string
		want string
		code int
	}{
		{
			name: "all on the list",
			list: "# a comment\na TestOne needs cgroups\na TestTwo why\n",
			want: "skipped tests: 2, of which 0 may not be\n",
		},
		{
			name: "a subtest is missing",
			list: "a TestOne needs cgroups\n",
			want: "skipped tests: 2, of which 1 may not be\na TestTwo/sub was skipped and is not in .ci/skips.txt\n",
			code: 1,
		},
		{
			name: "only a part of the name",
			list: "a TestO why\na TestTwo/su why\n",
			want: "skipped tests: 2, of which 2 may not be\n" +
				"a TestOne was skipped and is not in .ci/skips.txt\n" +
				"a TestTwo/sub was skipped and is not in .ci/skips.txt\n",
			code: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r := newReport(tt.list, &out)
			if err := r.read(strings.NewReader(events)); err != nil {
				t.Fatal(err)
			}
			code := r.finish()
			if d := cmp.Diff(printed+tt.want, out.String()); d != "" {
				t.Errorf("output (-want +got):\n%s", d)
			}
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
		})
	}
}

func TestMaybeChance(t *testing.T) {
	t.Parallel()
	const (
		output = `{"Action":"output","Package":"github.com/musterhq/muster/b","Test":"TestBad/sub","Output":"%s\n"}`
		sub    = `{"Action":"fail","Package":"github.com/musterhq/muster/b","Test":"TestBad/sub"}`
		bad    = `{"Action":"fail","Package":"github.com/musterhq/muster/b","Test":"TestBad"}`
		whole  = `{"Action":"fail","Package":"github.com/musterhq/muster/b"}`
		other  = `{"Action":"fail","Package":"github.com/musterhq/muster/c"}`
		build  = `{"ImportPath":"github.com/musterhq/muster/c","Action":"build-output","Output":"c.go:1: syntax error\n"}`
	)
	many := []string{sub}
	for i := range most + 1 {
		many = append(many, strings.ReplaceAll(bad, "TestBad", fmt.Sprintf("TestBad%d", i)))
	}
	for _, tt := range []struct {
		name   string
		events []string
		want   bool
	}{
		{"one test", []string{fmt.Sprintf(output, "b_test.go:7: got 1, want 2"), sub, bad, whole}, true},
		{"none", nil, false},
		{"a data race", []string{fmt.Sprintf(output, "WARNING: DATA RACE"), sub, bad, whole}, false},
		{"a panic", []string{fmt.Sprintf(output, "panic: runtime error"), bad, whole}, false},
		{"a package without a test that failed", []string{bad, whole, other}, false},
		{"a package that does not build", []string{bad, whole, build}, false},
		{"many", many, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newReport("", io.Discard)
			if err := r.read(strings.NewReader(strings.Join(tt.events, "\n"))); err != nil {
				t.Fatal(err)
			}
			if got := r.maybeChance(); got != tt.want {
				t.Errorf("maybeChance() = %t, want %t", got, tt.want)
			}
		})
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	f := failure{"b", "TestBad"}
	for _, tt := range [][2]string{
		{"-count=1 -timeout 20m -skip TestX ./a ./b ./...", "-count=1 -timeout 20m -skip TestX -count=3 -run ^TestBad$ github.com/musterhq/muster/b"},
		{"-v -run ^Test(A|Bad)$ ./b -e2e.kills 3", "-v -run ^Test(A|Bad)$ -count=3 -run ^TestBad$ github.com/musterhq/muster/b -e2e.kills 3"},
		{"-race github.com/musterhq/muster/a", "-race -count=3 -run ^TestBad$ github.com/musterhq/muster/b"},
	} {
		if got := strings.Join(again(strings.Fields(tt[0]), f), " "); got != tt[1] {
			t.Errorf("again(%q) = %q, want %q", tt[0], got, tt[1])
		}
	}
}
