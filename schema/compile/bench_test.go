package compile_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// job writes a job of about 1.2 KB of data.
func job(team, n int) string {
	return fmt.Sprintf(`
job: "service-%d": muster.#Job & {
	user: "team-%d", cell: "local"
	priority: "production"
	tasks:    %d
	labels: {tier: "front", component: "search", stage: "production", owner: "team-%d", costcentre: "4711"}
	task: {
		process: command: ["/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)", "--admin=$(MUSTER_PORT_ADMIN)", "--shard=$(MUSTER_TASK_INDEX)", "--log=info"]
		resources: {cpuMilli: 500, ramBytes: 256Mi, diskBytes: 1Gi, ports: ["http", "admin"]}
		env: {
			GREETING:     "hello from %d"
			BACKEND:      "local/team-%d/backend"
			FEATURE_A:    "on"
			FEATURE_B:    "off"
			CACHE_BYTES:  "1073741824"
			TRACE_SAMPLE: "0.01"
			DESCRIPTION:  "%s"
		}
		graceSeconds: 5
		health: http: {port: "http", path: "/healthz"}
	}
	update: {maxParallel: 2, minHealthySeconds: 5}
}
`, n, team, 1+n%7, team, n, team, strings.Repeat("some words ", 20))
}

// large makes a repository of packages × jobs.
func large(packages, jobs int) map[string]string {
	files := map[string]string{
		"tenants.cue":    "package config\n\nimport \"example.com/config/muster\"\n",
		"cells/cell.cue": "package cells\n\ncell: local: {}\n",
	}
	for p := range packages {
		files["tenants.cue"] += fmt.Sprintf("tenant: \"team-%d\": muster.#Tenant & {paths: [\"teams/t%d\"], users: [\"team-%d\"]}\n", p, p, p)
		for f := range 10 { // ten files a package
			var b strings.Builder
			fmt.Fprintf(&b, "package t%d\n\nimport \"example.com/config/muster\"\n", p)
			for n := f; n < jobs; n += 10 {
				b.WriteString(job(p, n))
			}
			files[fmt.Sprintf("teams/t%d/f%d.cue", p, f)] = b.String()
		}
	}
	return files
}

func compileAll(b testing.TB, c *compile.Compiler, t schema.Tree, jobs int) {
	b.Helper()
	out, err := c.Compile(b.Context(), t)
	if err != nil {
		b.Fatal(err)
	}
	if d := compile.Diagnostics(out); len(d) > 0 {
		b.Fatalf("diagnostics: %v", d[0])
	}
	n := 0
	for _, p := range out.Packages {
		n += len(p.Package.Objects.Jobs)
	}
	if n != jobs {
		b.Fatalf("%d jobs, want %d", n, jobs)
	}
}

// BenchmarkCompile compiles 10,000 jobs in 100 packages: all of them, none that
// changed, and one line that changed. MUSTER_BENCH_JOBS sets another number.
func BenchmarkCompile(b *testing.B) {
	jobs := 10_000
	if s := os.Getenv("MUSTER_BENCH_JOBS"); s != "" {
		if _, err := fmt.Sscan(s, &jobs); err != nil {
			b.Fatal(err)
		}
	}
	files := large(jobs/100, 100)
	whole := tree(files)
	c := compiler(b, compile.Config{})
	b.Run("cold", func(b *testing.B) {
		stop := watchChildren(b)
		for b.Loop() {
			c = compiler(b, compile.Config{})
			compileAll(b, c, whole, jobs)
		}
		child := stop()
		self, _ := peakRSS("/proc/self/status")
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-held")
		b.ReportMetric(float64(self)/(1<<20), "MiB-peak-parent")
		b.ReportMetric(float64(child)/(1<<20), "MiB-peak-child")
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			compileAll(b, c, whole, jobs)
		}
	})
	b.Run("line", func(b *testing.B) {
		n := 0
		for b.Loop() {
			b.StopTimer()
			n++
			const name = "teams/t7/f3.cue"
			changed := schema.Tree{Files: map[string]schema.File{}}
			for k, v := range whole.Files {
				changed.Files[k] = v
			}
			text := strings.Replace(files[name], "hello from", fmt.Sprintf("hello %d from", n), 1)
			changed.Files[name] = schema.File{Hash: string(schema.DigestBytes([]byte(text))), Data: []byte(text)}
			b.StartTimer()
			compileAll(b, c, changed, jobs)
		}
	})
}
