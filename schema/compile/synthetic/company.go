package synthetic

import (
	"fmt"
	"strings"
)

// company is the library of a company: its environments, and what a team writes of an
// application.
const company = `package company

#Environments: {
	dev: {priority: "free", scale: 1, level: "debug"}
	test: {priority: "free", scale: 1, level: "debug"}
	load: {priority: "free", scale: 3, level: "info"}
	stage: {priority: "free", scale: 2, level: "info"}
	live: {priority: "free", scale: 4, level: "info"}
}

#Application: {
	greeting: string
	tasks:    *1 | int & >=1 & <=100
	command: [string, ...string]
	env: [string]: string
	tier: *"front" | "back"
}
`

// Company returns a repository as companies write them: for each team a package of so many
// applications, which a comprehension makes into a job for each of five environments,
// through the library of Library. In applications the values of an application are beside
// each other, and what makes jobs of them is written once for each team.
func Company(teams, applications int) map[string]string {
	files := Library(teams, 0)
	files["lib/company/company.cue"] = company
	for t := range teams {
		for f := range filesEach {
			delete(files, File(t, f))
			var b strings.Builder
			for n := f; n < applications; n += filesEach {
				b.WriteString(application(t, n))
			}
			if b.Len() > 0 {
				files[File(t, f)] = fmt.Sprintf("package t%d\n%s", t, b.String())
			}
		}
		files[fmt.Sprintf("teams/t%d/jobs.cue", t)] = fmt.Sprintf(`package t%[1]d

import (
	"example.com/config/lib"
	"example.com/config/lib/company"
)

_applications: [string]: company.#Application

for environment, e in company.#Environments for name, a in _applications {
	job: "\(name)-\(environment)": lib.#Service & {
		#greeting: a.greeting
		user:      "team-%[1]d"
		priority:  e.priority
		tasks:     a.tasks * e.scale
		labels: {component: name, owner: "team-%[1]d", stage: environment, tier: a.tier}
		task: {
			process: command: a.command
			env: {a.env, LOG_LEVEL: e.level, STAGE: environment}
		}
	}
}
`, t)
	}
	return files
}

func application(team, n int) string {
	return fmt.Sprintf(`
_applications: "app-%d": {
	greeting: "%d"
	tasks:    %d
	command: ["/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)", "--log=info"]
	env: {
		BACKEND:     "local/team-%d/backend"
		FEATURE_A:   "on"
		DESCRIPTION: "%s"
	}
}
`, n, n, 1+n%7, team, strings.Repeat("some words ", 12))
}

// InLibrary is the library of Library and Company with a mistake in it, which every job has
// then.
func InLibrary(files map[string]string) {
	files["lib/web/web.cue"] = strings.Replace(files["lib/web/web.cue"], "path: *\"/healthz\" | string", "pth: *\"/healthz\" | string", 1)
}

// Deep returns a repository of one package, whose jobs are made through so many levels of
// definitions, each of which adds a label, and have a value that is nested as deep.
func Deep(levels, jobs int) map[string]string {
	files := Library(1, 0)
	var b strings.Builder
	b.WriteString("package t0\n\nimport \"example.com/config/lib\"\n\n#L0: lib.#Service\n")
	for n := range levels {
		fmt.Fprintf(&b, "#L%d: #L%d & {annotations: \"l%d\": \"level %d\"}\n", n+1, n, n, n)
	}
	fmt.Fprintf(&b, "_deep: %s3%s\n", strings.Repeat("{a: ", levels), strings.Repeat("}", levels))
	for n := range jobs {
		text := strings.Replace(service(0, n), "lib.#Service", fmt.Sprintf("#L%d", levels), 1)
		b.WriteString(strings.Replace(text, fmt.Sprintf("tasks:     %d", 1+n%7), "tasks:     _deep"+strings.Repeat(".a", levels), 1))
	}
	for f := range filesEach {
		delete(files, File(0, f))
	}
	files[File(0, 0)] = b.String()
	return files
}

// Spread returns a repository of one package of so many jobs in so many files.
func Spread(jobs, number int) map[string]string {
	files := Library(1, 0)
	for f := range max(number, filesEach) {
		var b strings.Builder
		b.WriteString("package t0\n\nimport \"example.com/config/lib\"\n")
		for n := f; n < jobs; n += number {
			b.WriteString(service(0, n))
		}
		delete(files, File(0, f))
		if f < number {
			files[File(0, f)] = b.String()
		}
	}
	return files
}
