package valid

import (
	"strings"

	"github.com/musterhq/muster/schema"
)

var tenantRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "paths", Required: true, Rule: &Rule{
			Type: List, Min: 1, Max: maxList, Unique: true,
			Elem: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchPath},
		}},
		{Name: "users", Default: []any{}, Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: nameRule}},
		{Name: "capabilities", Default: []any{}, Rule: &Rule{
			Type: List, Max: maxList, Unique: true, Elem: words(schema.CapabilityAdmin, schema.CapabilityMonitoring),
		}},
		{Name: "allow", Rule: allowRule},
		{Name: "tasksWithoutQuota", Rule: integer(Count, 0, schema.MaxCellTasks)},
		{Name: "nonPreemptibleTasks", Rule: integer(Count, 0, schema.MaxCellTasks)},
	},
	Alias: map[string]string{
		"allowed": "allow", "allow_caps": "allow.capabilities", "allowedCapabilities": "allow.capabilities", "devices": "allow.devices",
		"tasks": "tasksWithoutQuota", "maxTasks": "tasksWithoutQuota", "freeTasks": "tasksWithoutQuota",
		"preemptible": "nonPreemptibleTasks", "nonPreemptible": "nonPreemptibleTasks", "preemptibleTasks": "nonPreemptibleTasks",
		"path": "paths", "user": "users", "owners": "users", "members": "users", "roles": "capabilities",
	},
}

var allowRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "capabilities", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: capabilityWord()}},
		{Name: "devices", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: nameRule}},
		{Name: "volumes", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: nameRule}},
	},
	Alias: map[string]string{"caps": "capabilities", "allow_caps": "capabilities", "device": "devices", "volume": "volumes", "shared": "volumes", "host_volumes": "volumes"},
}

const privilegedWords = "no task is root on its machine; task.capabilities has what can be had"

// neverCapabilities are those of Linux that no task can have: who writes one means it, and no other
// that is spelled alike.
const neverCapabilities = `AUDIT_CONTROL AUDIT_READ AUDIT_WRITE BLOCK_SUSPEND BPF CHECKPOINT_RESTORE IPC_OWNER LEASE LINUX_IMMUTABLE
	MAC_ADMIN MAC_OVERRIDE MKNOD NET_BROADCAST PERFMON SETFCAP SYSLOG SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_MODULE SYS_PACCT SYS_PTRACE
	SYS_RAWIO SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG WAKE_ALARM`

// capabilityWord is the rule of a name of a capability, or of one of more words.
func capabilityWord(more ...string) *Rule {
	names := append(capabilityNames(), more...)
	alias := map[string]string{"all": "name each of them: no word stands for all that there are"}
	for name := range strings.FieldsSeq(neverCapabilities) {
		hint := "remove it: no task can have " + name
		alias[strings.ToLower(name)], alias["cap_"+strings.ToLower(name)] = hint, hint
	}
	for _, name := range names {
		alias["CAP_"+name], alias[strings.ToLower(name)], alias["cap_"+strings.ToLower(name)] = name, name, name
	}
	return aliased(words(names...), alias)
}

var capabilitiesRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "add", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: capabilityWord()}},
		{Name: "drop", Rule: &Rule{Type: List, Max: maxList, Unique: true, Elem: capabilityWord(schema.AllCapabilities)}},
	},
	Alias: map[string]string{"cap_add": "add", "capAdd": "add", "allow": "add", "cap_drop": "drop", "capDrop": "drop", "remove": "drop"},
}

var cellVolumesRule = &Rule{Type: Map, Max: maxList, Key: matchName, Elem: &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "readOnly", Rule: &Rule{Type: Bool}}},
	Never: map[string]string{
		"path": "each machine says where the directory is: muster-agent --volume NAME=PATH", "hostPath": "each machine says where the directory is: muster-agent --volume NAME=PATH",
		"source": "each machine says where the directory is: muster-agent --volume NAME=PATH",
	},
	Alias: map[string]string{"read_only": "readOnly", "ro": "readOnly", "readonly": "readOnly"},
}}
