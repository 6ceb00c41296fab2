package valid

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

const (
	maxFiles      = 64
	maxFileName   = 255       // Linux NAME_MAX, here of the whole path
	maxFilesBytes = 256 << 10 // together, since each machine is sent them with the job
)

var isolationRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "require", Rule: &Rule{Type: Bool}, Default: false},
		{Name: "network", Rule: networkRule},
		{Name: "user", Rule: &Rule{Type: Bool}, Default: false},
	},
	Never: map[string]string{
		"privileged": privilegedWords,
		"seccomp":    "the filter of system calls is the same for all tasks", "pid": "each task has a pid namespace of its own",
		"ipc": "each task has an ipc namespace of its own",
	},
	Alias: map[string]string{
		"required": "require", "strict": "require", "net": "network", "networkMode": "network", "network_mode": "network",
		"userns": "user", "userNamespace": "user", "hostUsers": "user", "hostNetwork": "network",
		"capabilities": "task.capabilities",
	},
}

var networkRule = aliased(words(schema.HostNetwork, schema.OwnNetwork, schema.NoNetwork), map[string]string{
	"private": "own", "isolated": "none", "empty": "none", "bridge": "own", "default": "host", "machine": "host", "pod": "own", "cni": "own",
})

// maxImage is the longest image: registry and name, tag and digest.
const maxImage = 255 + 1 + 128 + 1 + 71

var containerRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "image", Required: true, Rule: &Rule{Type: String, Min: 1, Max: maxImage, Match: matchImage}},
		{Name: "command", Rule: commandRule},
		{Name: "args", Rule: commandRule},
		{Name: "workdir", Rule: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchDir}},
		{Name: "user", Rule: &Rule{Type: String, Min: 1, Max: maxContainerUser, Match: matchContainerUser}},
		{Name: "readOnly", Rule: &Rule{Type: Bool}},
		{Name: "runtime", Rule: aliased(words(schema.Crun, schema.Runc, schema.Runsc), map[string]string{
			"gvisor": "runsc", "docker": "runc", "containerd": "runc", "podman": "crun", "oci": "crun", "cri-o": "crun",
		})},
	},
	Never: map[string]string{
		"root": "the root directory of a container is its image", "rootfs": "the root directory of a container is its image",
		"privileged": privilegedWords, "securityContext": "task.isolation and task.capabilities have what can be said of that",
		"imagePullPolicy": "an image is named by its digest, and pulled where it is not yet there", "force_pull": "an image is named by its digest, and pulled where it is not yet there",
		"name": "a task has one container, and its name is the task's",
	},
	Alias: map[string]string{
		"images": "image", "img": "image", "ref": "image", "tag": "image", "digest": "image", "repository": "image",
		"entrypoint": "command", "cmd": "args", "arguments": "args", "argv": "args",
		"workingDir": "workdir", "working_dir": "workdir", "work_dir": "workdir", "cwd": "workdir", "dir": "workdir",
		"uid": "user", "runAsUser": "user", "group": "user", "gid": "user", "runAsGroup": "user",
		"readonly": "readOnly", "read_only": "readOnly", "readonly_rootfs": "readOnly", "readOnlyRootFilesystem": "readOnly",
		"capabilities": "task.capabilities", "cap_add": "task.capabilities.add", "cap_drop": "task.capabilities.drop",
		"runtimeClassName": "runtime", "runtimeClass": "runtime", "oci_runtime": "runtime",
		"env": "task.env", "environment": "task.env", "ports": "task.resources.ports", "resources": "task.resources", "network_mode": "task.isolation.network",
		"volumes": "task.volumes", "volumeMounts": "task.volumes", "mounts": "task.volumes", "mount": "task.volumes", "tmpfs": "task.volumes",
	},
}

var filesRule = &Rule{Type: Map, Max: maxFiles, Key: matchFile, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "content", Rule: &Rule{Type: String, Max: maxArgBytes, Match: matchC}, Default: ""},
		{Name: "writable", Rule: &Rule{Type: Bool}, Default: false},
		{Name: "expand", Rule: &Rule{Type: Bool}, Default: false},
		{Name: "onChange", Rule: onChangeRule},
		{Name: "signal", Rule: changeSignalRule},
	},
	Never: map[string]string{
		"mode": "files are readable by all, and writable by the task with writable: true", "owner": "files belong to the user that the task runs as",
	},
	Alias: map[string]string{
		"text": "content", "data": "content", "contents": "content", "value": "content", "template": "content", "perms": "writable",
		"embedded_tmpl": "content", "interpolate": "expand",
		"change_mode": "onChange", "changeMode": "onChange", "change_signal": "signal", "reload": "onChange",
	},
}}

var onChangeRule = aliased(words(schema.ChangeRestart, schema.ChangeSignal, schema.ChangeNone), map[string]string{
	"noop": "none", "nothing": "none", "reload": "signal", "hup": "signal", "recreate": "restart",
})

var changeSignalRule = aliased(words(schema.ChangeSignals()...), signalAliases(schema.ChangeSignals()))

// signalAliases maps the names of signals without SIG, and in small letters, to them.
func signalAliases(names []string) map[string]string {
	aliases := map[string]string{}
	for _, name := range names {
		short := strings.TrimPrefix(name, "SIG")
		aliases[short], aliases[strings.ToLower(short)], aliases[strings.ToLower(name)] = name, name, name
	}
	return aliases
}

// changeSignal checks that the signal at path has an effect: what is its struct.
func (c *check) changeSignal(path []string, what map[string]any) {
	if _, ok := what["signal"]; !ok || what["onChange"] == string(schema.ChangeSignal) {
		return
	}
	c.add(Problem{
		Rule: schema.RuleNoEffect, Path: append(path, "signal"), Key: true, Message: `signal has no effect without onChange: "signal"`,
		Hint: `add onChange: "signal", or remove signal`,
	})
}

// secrets checks how a task gets its secrets.
func (c *check) secrets(task map[string]any) {
	c.all(taskSecretProblems(task))
	secrets, _ := task["secrets"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if given, ok := secrets[name].(map[string]any); ok {
			c.changeSignal([]string{"task", "secrets", name}, given)
		}
	}
}

var taskSecretsRule = &Rule{Type: Map, Max: maxSecrets, Key: matchName, KeyRefers: schema.KindSecret, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "file", Rule: &Rule{Type: String, Min: 1, Max: maxFileName, Match: matchFile}},
		{Name: "env", Rule: &Rule{Type: String, Min: 1, Max: 128, Match: matchEnv}},
		{Name: "mode", Rule: &Rule{Type: String, Min: 1, Max: 4, Match: matchMode}},
		{Name: "onChange", Rule: onChangeRule},
		{Name: "signal", Rule: changeSignalRule},
	},
	Never: map[string]string{"owner": "files belong to the user that the task runs as", "uid": "files belong to the user that the task runs as", "gid": "files belong to the user that the task runs as"},
	Alias: map[string]string{
		"path": "file", "mountPath": "file", "target": "file", "destination": "file", "name": "file", "variable": "env", "envVar": "env",
		"perms": "mode", "defaultMode": "mode", "change_mode": "onChange", "changeMode": "onChange", "change_signal": "signal",
	},
}}

var secretRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "user", Rule: nameRule, Required: true},
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "age", Rule: &Rule{Type: String, Max: maxSealed}},
		{Name: "sops", Rule: &Rule{Type: String, Max: maxSealed}},
		{Name: "key", Rule: &Rule{Type: String, Max: maxSecretKey, Match: matchLine}},
		{Name: "registry", Rule: registryRule},
	},
	Never: map[string]string{
		"value": "a secret is in the repository as ciphertext only", "data": "a secret is in the repository as ciphertext only",
		"stringData": "a secret is in the repository as ciphertext only", "content": "a secret is in the repository as ciphertext only",
		"plaintext": "a secret is in the repository as ciphertext only",
	},
	Alias: map[string]string{
		"owner": "user", "namespace": "user", "encrypted": "age", "encryptedData": "age", "ciphertext": "age", "file": "age", "path": "key", "field": "key",
	},
}

var cellSecretsRule = &Rule{
	Type: Struct,
	Fields: []Field{{Name: "recipients", Required: true, Rule: &Rule{
		Type: List, Min: 1, Max: maxList, Unique: true, Elem: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchRecipient},
	}}},
	Alias: map[string]string{"keys": "recipients", "recipient": "recipients", "age": "recipients", "publicKeys": "recipients"},
}

const (
	maxRegistry = 255
	maxLogin    = 2*schema.MaxNameLen + 1
)

const registryGrammar = "a host name in lower case or an address, with :PORT if that is not 443, such as registry.example.com"

var registryRule = &Rule{Type: String, Min: 1, Max: maxRegistry, Match: matchRegistry}

var cellRegistriesRule = &Rule{Type: Map, Max: maxList, Key: matchRegistry, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "mirrors", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: registryRule}},
		{Name: "login", Rule: &Rule{Type: String, Min: 1, Max: maxLogin, Match: matchLogin}},
	},
	Never: map[string]string{
		"password": "a login is a secret, which login names", "auth": "a login is a secret, which login names", "username": "a login is a secret, which login names",
		"insecure": "whether an agent speaks http is decided on its machine: --insecure-registry", "plainHTTP": "whether an agent speaks http is decided on its machine: --insecure-registry",
	},
	Alias: map[string]string{"secret": "login", "credentials": "login", "pullSecret": "login", "mirror": "mirrors", "endpoint": "mirrors", "endpoints": "mirrors"},
}}

func matchRegistry(s string) string {
	if err := schema.CheckRegistry(s); err != nil {
		_, hint := schema.HintOf(err)
		if name, ok := strings.CutPrefix(hint, "write "); ok {
			return name + ": " + registryGrammar
		}
		return registryGrammar
	}
	return ""
}

// matchLogin takes the name of a secret with its user.
func matchLogin(s string) string {
	user, name, ok := strings.Cut(s, "/")
	if !ok || schema.CheckName(user) != nil || schema.CheckName(name) != nil {
		return `a user and the name of one of their secrets, as in "ops/pull"`
	}
	return ""
}

const fileGrammar = "a path below the work directory, such as etc/app.conf: names of letters, digits and . _ - with / between them"

// matchFile takes paths that stay where they begin.
func matchFile(s string) string {
	if s == "" || len(s) > maxFileName || s != path.Clean(s) || s[0] == '/' {
		return fileGrammar
	}
	for name := range strings.SplitSeq(s, "/") {
		if name == "." || name == ".." || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			return fileGrammar
		}
	}
	return ""
}

const rootGrammar = "the absolute path of a directory, without . or .. in it and without a slash at its end"

const programsGrammar = "a directory with the task's programs, such as /srv/images/debian-12: what is in /proc, /sys and /dev shows what the kernel knows of the machine"

// kernelDirs have no programs, and show what of the machine a task must not see: the
// node agent refuses them as roots, and what leads there by links.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

func matchDir(s string) string {
	if !strings.HasPrefix(s, "/") || s != path.Clean(s) || matchLine(s) != "" {
		return rootGrammar
	}
	return ""
}

func matchRoot(s string) string {
	if want := matchDir(s); want != "" {
		return want
	}
	for _, dir := range kernelDirs {
		if s == dir || strings.HasPrefix(s, dir+"/") {
			return programsGrammar
		}
	}
	return ""
}

// isolation checks what ties a task's isolation and files to its other fields.
func (c *check) isolation(task map[string]any, ports []string) {
	isolation, _ := task["isolation"].(map[string]any)
	if _, said := isolation["network"]; !said && isolation != nil && task["container"] == nil {
		isolation["network"] = string(schema.HostNetwork)
	}
	if isolation["network"] == string(schema.NoNetwork) && len(ports) > 0 {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "isolation", "network"},
			Message:  fmt.Sprintf("port %q cannot be reached: the task has no network", short(ports[0])),
			Expected: fmt.Sprintf("%q or %q, or no resources.ports", schema.HostNetwork, schema.OwnNetwork),
		})
	}
}

// files checks what ties the files of a task together, and what they refer to.
func (c *check) files(task map[string]any, v variables) {
	files, _ := task["files"].(map[string]any)
	total := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, _ := files[name].(map[string]any)
		content, _ := file["content"].(string)
		total += len(content)
		c.changeSignal([]string{"task", "files", name}, file)
		if expand, _ := file["expand"].(bool); expand {
			c.references([]string{"task", "files", name, "content"}, content, v)
		}
		for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"task", "files", name}, Key: true, Message: fmt.Sprintf("%q is also a file", short(dir)), Expected: "a directory, or another name"})
			}
		}
		if name == "tmp" {
			c.add(Problem{Rule: schema.RuleNoEffect, Path: []string{"task", "files", name}, Key: true, Message: `"tmp" is the task's directory for temporary files`, Expected: "another name"})
		}
	}
	if total > maxFilesBytes {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"task", "files"}, Message: fmt.Sprintf("the files have %d bytes together", total),
			Expected: fmt.Sprintf("at most %d", maxFilesBytes), Hint: "files are for configuration; put larger data on the machine, or where the task can download it",
		})
	}
}

var stopRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "command", Rule: commandRule},
		{Name: "timeoutSeconds", Rule: integer(Seconds, 1, maxSeconds)},
		{Name: "delaySeconds", Rule: integer(Seconds, 1, maxSeconds)},
		{Name: "signal", Rule: aliased(words(schema.StopSignals()...), signalAliases(schema.StopSignals()))},
	},
	Never: map[string]string{"SIGKILL": "a task that is to be killed at once has graceSeconds: 0"},
	Alias: map[string]string{
		"exec": "command", "cmd": "command", "preStop": "command", "run": "command", "timeout": "timeoutSeconds", "kill_signal": "signal", "stopSignal": "signal",
		"graceSeconds": "task.graceSeconds", "grace": "task.graceSeconds", "args": "command",
		"delay": "delaySeconds", "shutdown_delay": "delaySeconds", "shutdownDelay": "delaySeconds", "sleep": "delaySeconds",
	},
}

// stop checks what ties the fields together that say how a task is stopped.
func (c *check) stop(task map[string]any, v variables) {
	stop, ok := task["stop"].(map[string]any)
	if !ok {
		return
	}
	command, commanded := stop["command"]
	c.command([]string{"task", "stop", "command"}, command, v)
	grace, known := wholeNumber(task["graceSeconds"])
	timeout, timed := wholeNumber(stop["timeoutSeconds"])
	if delay, delayed := wholeNumber(stop["delaySeconds"]); delayed && known && delay > grace {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"task", "stop", "delaySeconds"}, Message: fmt.Sprintf("%d is out of range", delay),
			Expected: fmt.Sprintf("at most graceSeconds, which is %d", grace), Hint: "the delay is part of the grace period: give the task a longer graceSeconds",
		})
	}
	switch {
	case timed && !commanded:
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "stop", "timeoutSeconds"}, Key: true, Message: "timeoutSeconds has no effect without a command",
			Hint: "add command, or remove timeoutSeconds; graceSeconds of the task is the time until SIGKILL",
		})
	case commanded && known && grace == 0:
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "stop", "command"}, Key: true, Message: "a task with graceSeconds: 0 is killed before the command has run",
			Hint: "give the task a longer graceSeconds, or remove command",
		})
	case timed && known && timeout > grace:
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"task", "stop", "timeoutSeconds"}, Message: fmt.Sprintf("%d is out of range", timeout),
			Expected: fmt.Sprintf("at most graceSeconds, which is %d", grace), Hint: "the command is part of the grace period: give the task a longer graceSeconds",
		})
	}
}

const (
	maxMounts   = 32
	maxFrom     = 2048
	minTmpBytes = 4096
	digestLen   = len("sha256:") + 64
)

var packagesRule = &Rule{Type: List, Max: maxMounts, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "name", Required: true, Rule: nameRule},
		{Name: "digest", Required: true, Rule: &Rule{Type: String, Min: 1, Max: int64(digestLen), Match: matchDigest}},
		{Name: "from", Required: true, Rule: &Rule{Type: String, Min: 1, Max: maxFrom, Match: matchFrom}},
		{Name: "path", Required: true, Rule: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchMount}},
	},
	Never: map[string]string{
		"mode": "files have the permissions that the archive says", "owner": "files have the owners that the archive says",
		"readOnly": "a package is always read-only",
	},
	Alias: map[string]string{
		"sha256": "digest", "checksum": "digest", "hash": "digest", "sum": "digest", "options": "digest", "url": "from", "source": "from", "src": "from", "image": "from",
		"destination": "path", "target": "path", "mountPath": "path", "dir": "path", "to": "path",
	},
}}

var volumesRule = &Rule{Type: Map, Max: maxMounts, Key: matchName, Elem: &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "path", Required: true, Rule: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchVolume}},
		{Name: "tmpBytes", Rule: integer(Bytes, minTmpBytes, maxRAMBytes)},
		{Name: "shared", Rule: nameRule},
		{Name: "readOnly", Rule: &Rule{Type: Bool}},
	},
	Never: map[string]string{
		"csi": "CSI plugins are not supported yet", "plugin": "CSI plugins are not supported yet", "persistentVolumeClaim": "CSI plugins are not supported yet",
		"nfs":              "a task cannot mount file systems: mount it on the machine, and share it with muster-agent --volume",
		"mountPropagation": "what is mounted in a volume later is never seen elsewhere", "propagation": "what is mounted in a volume later is never seen elsewhere",
	},
	Alias: map[string]string{
		"mountPath": "path", "destination": "path", "target": "path", "dir": "path", "mount": "path",
		"tmp": "tmpBytes", "size": "tmpBytes", "sizeBytes": "tmpBytes", "sizeLimit": "tmpBytes", "emptyDir": "tmpBytes", "tmpfs": "tmpBytes", "memory": "tmpBytes",
		"host": "shared", "hostPath": "shared", "source": "shared", "name": "shared", "bind": "shared", "local": "shared", "volume": "shared",
		"read_only": "readOnly", "readonly": "readOnly", "ro": "readOnly", "sticky": "task.sticky",
	},
}}

var digestForm = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)

func matchDigest(s string) string {
	if !digestForm.MatchString(s) {
		return "sha256: and 64 digits of 0-9 and a-f"
	}
	return ""
}

const fromGrammar = "https://HOST/PATH, or oci://REGISTRY/NAME"

// matchFrom takes what a machine can fetch an archive from.
func matchFrom(s string) string {
	if name, ok := strings.CutPrefix(s, "oci://"); ok {
		if r, err := schema.ParseImageTag(name); err != nil || r.Tag != "" || r.Digest != "" {
			return fromGrammar
		}
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" || u.Path == "" || matchLine(s) != "" {
		return fromGrammar
	}
	return ""
}

const mountGrammar = "an absolute path, without . or .. in it and without a slash at its end, that is not / nor in /proc, /sys, /dev, /tmp or /muster"

// ownDirs are those in a task's root directory in which nothing can be mounted.
var ownDirs = append(slices.Clone(kernelDirs), "/tmp", "/muster")

func matchMount(s string) string {
	if matchDir(s) != "" || s == "/" || slices.ContainsFunc(ownDirs, func(dir string) bool { return within(s, dir) }) {
		return mountGrammar
	}
	return ""
}

// matchVolume is matchMount for what may be all of /tmp.
func matchVolume(s string) string {
	if s == "/tmp" {
		return ""
	}
	return matchMount(s)
}

// within reports whether path is dir or lies in it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// mounts checks what ties together what a task has at paths of its own.
func (c *check) mounts(task map[string]any) {
	m := mountCheck{check: c, names: map[string]bool{}}
	packages, _ := task["packages"].([]any)
	for i, x := range packages {
		p, _ := x.(map[string]any)
		m.pack([]string{"task", "packages", fmt.Sprint(i)}, p)
	}
	volumes, _ := task["volumes"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		v, _ := volumes[name].(map[string]any)
		m.volume([]string{"task", "volumes", name}, v)
	}
	resources, _ := task["resources"].(map[string]any)
	if ram, ok := wholeNumber(resources["ramBytes"]); ok && m.memory > max(ram, mib) {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"task", "volumes", largest(volumes), "tmpBytes"}, Message: fmt.Sprintf("the volumes of memory have %d bytes together", m.memory),
			Expected: fmt.Sprintf("at most ramBytes, which is %d", ram), Hint: "they count as the task's memory: raise resources.ramBytes",
		})
	}
	isolation, _ := task["isolation"].(map[string]any)
	user, _ := isolation["user"].(bool)
	if _, process := task["process"]; process && len(packages) > 0 && user {
		c.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"task", "packages"}, Message: "a process with isolation.user cannot have packages: this is not supported yet",
			Expected: "a container, or no isolation.user",
		})
	}
}

// mountCheck is what was found so far of one task.
type mountCheck struct {
	*check
	names  map[string]bool // of packages
	taken  []taken
	memory int64 // of volumes, in bytes
}

// taken is a path of a task.
type taken struct{ path, of string }

func (m *mountCheck) pack(at []string, p map[string]any) {
	name, _ := p["name"].(string)
	if m.names[name] {
		m.add(Problem{Rule: schema.RuleInvalidValue, Path: append(at, "name"), Message: fmt.Sprintf("there are two packages called %q", short(name)), Expected: "each name once"})
	}
	m.names[name] = true
	m.take(append(at, "path"), p["path"], "the package "+name)
}

func (m *mountCheck) volume(at []string, v map[string]any) {
	m.take(append(at, "path"), v["path"], "the volume "+at[len(at)-1])
	size, memory := wholeNumber(v["tmpBytes"])
	_, shared := v["shared"].(string)
	m.memory += size
	path, _ := v["path"].(string)
	readOnly, _ := v["readOnly"].(bool)
	switch {
	case memory == shared && !memory && !m.plain(v): // what was meant, or is wrong, is said of another field
	case memory == shared:
		m.add(Problem{
			Rule: schema.RuleMissingField, Path: append(at, "tmpBytes"), Missing: !memory, Key: true, Message: fmt.Sprintf("volume %q has %s tmpBytes and shared", at[len(at)-1], map[bool]string{true: "both", false: "neither of"}[memory]),
			Expected: "one of tmpBytes, shared", Hint: `write tmpBytes: 64Mi for one in memory, or shared: "NAME" for a directory of the machine`,
		})
	case memory && readOnly:
		m.add(Problem{Rule: schema.RuleNoEffect, Path: append(at, "readOnly"), Message: "a volume of memory that nobody can write to is empty for ever", Expected: "false"})
	case shared && path == "/tmp":
		m.add(Problem{Rule: schema.RuleInvalidValue, Path: append(at, "path"), Message: "/tmp is the task's own: no directory of the machine can be there", Expected: mountGrammar})
	}
}

// plain reports whether a volume has no fields but its own, and each is right.
func (m *mountCheck) plain(v map[string]any) bool {
	for name, of := range v {
		_, broken := of.(Broken)
		if broken && name != "path" || !volumesRule.Elem.Has(name) {
			return false
		}
	}
	return true
}

// take notes a path, which no other may be in.
func (m *mountCheck) take(at []string, value any, of string) {
	path, _ := value.(string)
	if path == "" {
		return
	}
	for _, t := range m.taken {
		if within(path, t.path) || within(t.path, path) {
			m.add(Problem{Rule: schema.RuleInvalidValue, Path: at, Message: fmt.Sprintf("%s and %s, where %s is, overlap", short(path), short(t.path), t.of), Expected: "a path that is not in another, and has no other in it"})
			break
		}
	}
	m.taken = append(m.taken, taken{path, of})
}

// maxBeforeSeconds is the longest that a command before a task may be given.
const maxBeforeSeconds = 86400

var beforeRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "process", Rule: processRule},
		{Name: "container", Rule: containerRule},
		{Name: "timeoutSeconds", Rule: integer(Seconds, 1, maxBeforeSeconds)},
	},
	Never: map[string]string{
		"name": "commands before a task are named by their place in the list", "resources": "a command before a task has the limits of the task",
		"env": "a command before a task has the environment of the task", "restart": "when a command before a task fails, the task's restart policy decides",
	},
	Alias: map[string]string{
		"command": "process.command", "exec": "process.command", "image": "container.image", "args": "container.args", "timeout": "timeoutSeconds",
	},
}

// before checks what runs before a task.
func (c *check) before(task map[string]any, v variables) {
	list, _ := task["before"].([]any)
	for i, x := range list {
		b, ok := x.(map[string]any)
		if !ok {
			continue
		}
		at := []string{"task", "before", strconv.Itoa(i)}
		process, isProcess := b["process"].(map[string]any)
		container, isContainer := b["container"].(map[string]any)
		switch {
		case isProcess && isContainer:
			c.add(Problem{
				Rule: schema.RuleNoEffect, Path: append(at, "container"), Key: true, Message: `what has "process" cannot also have "container"`,
				Expected: "one of process, container", Hint: "write one after the other in the list",
			})
		case !isProcess && !isContainer && !c.found(at...):
			c.add(Problem{
				Rule: schema.RuleMissingField, Path: at, Message: "does not say what to run", Expected: "one of process, container",
				Hint: `write {process: command: ["…"]}, or {container: image: "…"}`,
			})
		case isProcess:
			c.command(append(at, "process", "command"), process["command"], v)
		case isContainer:
			c.command(append(at, "container", "command"), container["command"], v)
			c.words(append(at, "container", "args"), container["args"], v)
		}
	}
}
