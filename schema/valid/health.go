package valid

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

const (
	maxCount       = 100   // of checks in a row
	maxWindow      = 86400 // seconds
	maxHeaders     = 16
	maxHeaderBytes = 1024
)

// checks are the fields of which a health check has exactly one.
var checks = []string{"http", "tcp", "exec"}

// execRule is of a command beside the task, in its root directory if it has one.
var execRule = &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "command", Required: true, Rule: commandRule}},
	Alias:  map[string]string{"cmd": "command", "argv": "command", "args": "command"},
}

var healthRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "http", Rule: httpRule},
		{Name: "tcp", Rule: &Rule{Type: Struct, Fields: []Field{{Name: "port", Rule: nameRule, Required: true}}, Later: []string{"tls"}}},
		{Name: "exec", Rule: execRule},
		{Name: "startSeconds", Rule: integer(Seconds, 0, maxSeconds), Default: num(schema.DefaultStartSeconds)},
		{
			Name: "intervalSeconds", Rule: integer(Seconds, 1, maxSeconds), Default: num(schema.DefaultIntervalSeconds),
			DefaultBeside: map[string]any{"exec": num(schema.DefaultExecSeconds)},
		},
		{Name: "timeoutSeconds", Rule: integer(Seconds, 1, maxSeconds), Default: num(schema.DefaultTimeoutSeconds)},
		{Name: "failures", Rule: integer(Count, 1, maxCount), Default: num(schema.DefaultFailures)},
		{Name: "successes", Rule: integer(Count, 1, maxCount), Default: num(schema.DefaultSuccesses)},
	},
	Later: []string{"grpc"},
	Alias: map[string]string{
		"port": "http.port", "path": "http.path", "url": "http.path", "httpGet": "http", "https": "http", "type": "http",
		"tcpSocket": "tcp", "command": "exec.command", "script": "exec.command", "cmd": "exec.command", "test": "exec.command",
		"interval": "intervalSeconds", "periodSeconds": "intervalSeconds", "period": "intervalSeconds", "every": "intervalSeconds",
		"timeout": "timeoutSeconds", "start": "startSeconds", "startPeriod": "startSeconds", "start_period": "startSeconds",
		"initialDelaySeconds": "startSeconds", "grace": "startSeconds", "failureThreshold": "failures", "retries": "failures",
		"threshold": "failures", "successThreshold": "successes",
	},
}

// beside is the hint for timings that are given within a check.
const beside = " beside http, in health"

var httpRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "port", Rule: nameRule, Required: true},
		{Name: "path", Rule: &Rule{Type: String, Min: 1, Max: maxURLPath, Match: matchURLPath}, Default: "/"},
		{Name: "method", Rule: words("GET", "HEAD")},
		{Name: "headers", Rule: &Rule{
			Type: Map, Max: maxHeaders, Key: matchHeader,
			Elem: &Rule{Type: String, Max: maxHeaderBytes, Match: matchLine},
		}},
	},
	Later: []string{"scheme"},
	Alias: map[string]string{
		"url": "path", "httpPath": "path", "header": "headers", "httpHeaders": "headers", "verb": "method", "host": "headers.Host",
		"intervalSeconds": "intervalSeconds" + beside, "timeoutSeconds": "timeoutSeconds" + beside, "startSeconds": "startSeconds" + beside,
		"failures": "failures" + beside, "successes": "successes" + beside,
	},
}

var restartRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "attempts", Rule: integer(Count, 0, schema.MaxAttempts), Default: num(int64(schema.DefaultRestart.Attempts))},
		{Name: "windowSeconds", Rule: integer(Seconds, 1, maxWindow), Default: num(int64(schema.DefaultRestart.WindowSeconds))},
		{Name: "delaySeconds", Rule: integer(Seconds, 0, maxSeconds), Default: num(int64(schema.DefaultRestart.DelaySeconds))},
		{Name: "maxDelaySeconds", Rule: integer(Seconds, 0, maxSeconds), Default: num(int64(schema.DefaultRestart.MaxDelaySeconds))},
	},
	Never: map[string]string{
		"mode": "when its attempts are used up, the cell starts a task elsewhere: there is no other mode",
	},
	Alias: map[string]string{
		"max_attempts": "attempts", "maxAttempts": "attempts", "retries": "attempts", "maxRetries": "attempts", "backoffLimit": "attempts",
		"limit": "attempts", "interval": "windowSeconds", "window": "windowSeconds", "resetSeconds": "windowSeconds",
		"delay": "delaySeconds", "backoff": "delaySeconds", "max_delay": "maxDelaySeconds", "maxDelay": "maxDelaySeconds", "maxBackoff": "maxDelaySeconds",
	},
}

func matchHeader(s string) string {
	ok := len(s) >= 1 && len(s) <= 64
	for i := 0; ok && i < len(s); i++ {
		ok = alnum(s[i]) || s[i] == '-'
	}
	if !ok {
		return "the name of a header field, 1 to 64 letters, digits and hyphens"
	}
	return ""
}

// restartHint says how to write what other systems have one word for.
func restartHint(word string) string {
	switch strings.ToLower(word) {
	case "never", "no":
		return "write a struct: {attempts: 0}"
	case "always", "onfailure", "on-failure", "unless-stopped":
		return "tasks are restarted by default; {attempts: 10} sets how often on one machine"
	}
	return ""
}

// health checks that a task is asked in exactly one way, of a port that it has.
func (c *check) health(task map[string]any, v variables) {
	health, ok := task["health"].(map[string]any)
	if !ok {
		return
	}
	var given []string
	for _, name := range checks {
		if check, ok := health[name]; ok {
			given = append(given, name)
			if m, ok := check.(map[string]any); ok {
				c.portOf([]string{"task", "health", name, "port"}, m["port"], v.ports)
			}
		}
	}
	switch len(given) {
	case 0:
		if c.found("task", "health") {
			return // how it is asked is misspelt
		}
		c.add(Problem{
			Rule: schema.RuleMissingField, Path: []string{"task", "health"}, Message: "does not say how to check the task", Expected: "one of " + strings.Join(checks, ", "),
			Hint: oneOf(v.ports),
		})
	case 1:
	default:
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "health", given[1]}, Key: true, Message: fmt.Sprintf("a health check with %q cannot also have %q", given[0], given[1]),
			Expected: "one of " + strings.Join(checks, ", "), Hint: "remove all but one",
		})
	}
	if exec, ok := health["exec"].(map[string]any); ok {
		c.command([]string{"task", "health", "exec", "command"}, exec["command"], v)
	}
}

// found reports whether something within the value at a path is in error.
func (c *check) found(path ...string) bool {
	return slices.ContainsFunc(c.problems, func(p Problem) bool {
		return len(p.Path) > len(path) && slices.Equal(p.Path[:len(path)], path)
	})
}

// oneOf writes a health check that a task with these ports could have.
func oneOf(ports []string) string {
	if len(ports) == 0 {
		return `write exec: command: ["…"], or declare a port and check it`
	}
	return fmt.Sprintf("write http: port: %q, or tcp: port: %q", short(ports[0]), short(ports[0]))
}

// portOf checks that a port that a field names is declared.
func (c *check) portOf(path []string, v any, ports []string) {
	port, ok := v.(string)
	if !ok || slices.Contains(ports, port) || c.meansPorts() {
		return
	}
	c.add(undeclared(Problem{Rule: schema.RuleUndefined, Path: path}, port, ports))
}

// undeclared completes what is said of a port that is not declared.
func undeclared(p Problem, port string, ports []string) Problem {
	p.Message = fmt.Sprintf("no port %q is declared", short(port))
	p.Expected, p.Hint = "a name from task.resources.ports", didYouMean(port, ports, nil)
	if len(ports) == 0 {
		p.Hint = fmt.Sprintf("add ports: [%q] to task.resources", short(port))
	}
	return p
}

// numbers checks that the ports that ask for numbers are declared, and that no
// two ask for the same.
func (c *check) numbers(task map[string]any, ports []string) {
	resources, _ := task["resources"].(map[string]any)
	asked, _ := resources["portNumbers"].(map[string]any)
	holder := map[int]string{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		path := []string{"task", "resources", "portNumbers", name}
		if !slices.Contains(ports, name) && matchName(name) == "" {
			if !c.meansPorts() {
				c.add(undeclared(Problem{Rule: schema.RuleUndefined, Path: path, Key: true}, name, ports))
			}
			continue
		}
		n := intOf(asked[name])
		if first, again := holder[n]; again && n > 0 {
			c.add(Problem{Rule: schema.RuleNoEffect, Path: path, Message: fmt.Sprintf("%d is also the number of port %q", n, first), Expected: "each number once"})
			continue
		}
		holder[n] = name
	}
}

// command checks the words of a command.
func (c *check) command(path []string, v any, vars variables) {
	c.words(path, v, vars)
	if words, _ := v.([]any); len(words) > 0 && words[0] == any("") {
		c.add(Problem{Rule: schema.RuleInvalidValue, Path: append(slices.Clone(path), "0"), Message: "is empty", Expected: "the name of a program"})
	}
}

// words checks what the words of a command refer to.
func (c *check) words(path []string, v any, vars variables) {
	words, _ := v.([]any)
	for i, word := range words {
		c.references(append(slices.Clone(path), strconv.Itoa(i)), word, vars)
	}
}
