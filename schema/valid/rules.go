package valid

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/schema"
)

// The bounds that no other package has a name for. Amounts are bounded so that
// the sum over the largest job (MaxTasks tasks) stays within an int64.
const (
	mib           = 1 << 20
	tib           = 1 << 40
	maxCPUMilli   = 10_000_000        // ten thousand cores in one task
	maxRAMBytes   = 16 * tib          // in one task
	maxDiskBytes  = 64 * tib          // in one task
	maxQuotaMilli = 1_000_000_000_000 // a thousand million cores
	maxQuotaBytes = 1 << 60
	maxQuotaTasks = 1_000_000_000
	maxQuotaJobs  = 1_000_000
	maxOversell   = 10_000 // percent
	minYear       = 1970
	maxYear       = 9999 // RFC 3339 §5.6 has four digits
	maxSeconds    = 3600
	maxDaySeconds = 86400
	// defaultCanaryWait is a minute: long enough for a restart policy's first
	// restarts to show.
	defaultCanaryWait = 60
	maxArgs           = 1000
	maxArgBytes       = 64 << 10 // Linux takes 128 KiB for one string
	maxEnv            = 256
	maxArgsBytes      = 512 << 10 // together; Linux takes 2 MiB with those of the environment
	maxEnvBytes       = 512 << 10 // likewise, with the names
	maxLabels         = 64
	maxPorts          = 32
	maxURLPath        = 1024
	minLogBytes       = 64 << 10 // less holds no long line
	maxLogBytes       = 1 << 30
	minLogFiles       = 2 // one is begun while the other is full
	maxLogFiles       = 100
	minProcesses      = 16      // what starts a task, and each command beside it, has some threads
	maxProcesses      = 1 << 22 // Linux PID_MAX_LIMIT
	minFiles          = 16      // a program does not get as far as its first line with a few
	maxOpenFiles      = 1 << 20 // what Linux has as fs.nr_open
	maxList           = 100
	maxPath           = 4096 // Linux PATH_MAX
	maxNotes          = 256
	maxNote           = 4 << 10
	maxNotesBytes     = 64 << 10
	maxWeights        = 16
)

// Of returns the rule of a kind's objects; nil for a kind that does not exist.
func Of(k schema.Kind) *Rule {
	switch k {
	case schema.KindCell:
		return cellRule
	case schema.KindMachine:
		return machineRule
	case schema.KindPriority:
		return priorityRule
	case schema.KindTenant:
		return tenantRule
	case schema.KindQuota:
		return quotaRule
	case schema.KindSecret:
		return secretRule
	case schema.KindService:
		return serviceRule
	case schema.KindAllocSet:
		return allocSetRule
	case schema.KindJob:
		return jobRule
	}
	return nil
}

func num(n int64) json.Number { return json.Number(fmt.Sprint(n)) }

func integer(u Unit, lo, hi int64) *Rule { return &Rule{Type: Int, Unit: u, Min: lo, Max: hi} }

func words[T ~string](w ...T) *Rule {
	r := &Rule{Type: Enum}
	for _, s := range w {
		r.Words = append(r.Words, string(s))
	}
	return r
}

var bandRule = aliased(words(schema.Bands()...), bandAlias)

var appClassRule = aliased(words(schema.ClassLatencySensitive, schema.ClassBatch), appClassAlias)

var kindRule = aliased(words(schema.Service, schema.Batch, schema.System), jobKindAlias)

// NameRule returns the rule of the names of objects.
func NameRule() *Rule { return nameRule }

// soldBandRule is the bands that quota is for.
var soldBandRule = &Rule{
	Type: Enum, Words: bandRule.Words[1:], Alias: bandAlias,
	Never: map[string]string{string(schema.BandFree): "band free needs no quota"},
}

var timeRule = &Rule{Type: Time, Min: minYear, Max: maxYear}

var nameRule = &Rule{Type: String, Min: 1, Max: schema.MaxNameLen, Match: matchName}

var cellRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "quota", Rule: words("on", "off"), Default: "on"},
		{Name: "oversellPercent", Rule: oversellRule},
		{Name: "lost", Rule: lostRule},
		{Name: "secrets", Rule: cellSecretsRule},
		{Name: "registries", Rule: cellRegistriesRule},
		{Name: "volumes", Rule: cellVolumesRule},
		{Name: "network", Rule: cellNetworkRule},
		{Name: "rebalance", Rule: rebalanceRule},
		{Name: "maxTasks", Rule: integer(Count, 1, schema.MaxCellTasks)},
	},
	Alias: map[string]string{
		"tasks": "maxTasks", "maxPods": "maxTasks",
		"rebalancing": "rebalance", "descheduler": "rebalance", "moves": "rebalance", "movesPerHour": "rebalance.movesPerHour", "quiet": "rebalance.quiet",
		"networks": "network", "cidr": "network", "podCIDR": "network", "clusterCIDR": "network", "addresses": "network", "vxlan": "network",
		"registry": "registries", "mirrors": "registries", "imagePullSecrets": "registries", "registryMirrors": "registries",
		"volume": "volumes", "shared": "volumes", "hostVolumes": "volumes", "host_volume": "volumes", "host_volumes": "volumes",
		"oversell": "oversellPercent", "overcommit": "oversellPercent", "quotas": "quota", "machines": "objects of kind machine",
		"nodes": "objects of kind machine", "priorities": "objects of kind priority",
		"loss": "lost", "failure": "lost", "unreachable": "lost", "silence": "lost",
	},
}

var clockRule = &Rule{Type: String, Min: 5, Max: 5, Match: func(s string) string {
	if !schema.IsClock(s) {
		return "a time of day in UTC, from 00:00 to 23:59"
	}
	return ""
}}

var rebalanceRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "movesPerHour", Rule: integer(Count, 0, schema.MaxTasks), Default: num(schema.DefaultMovesPerHour)},
		{Name: "emptyBelow", Rule: integer(Percent, 0, schema.MaxEmptyBelow)},
		{Name: "quiet", Rule: &Rule{
			Type: Struct,
			Fields: []Field{
				{Name: "from", Rule: clockRule, Required: true},
				{Name: "to", Rule: clockRule, Required: true},
			},
			Alias: map[string]string{"start": "from", "begin": "from", "end": "to", "until": "to"},
		}},
	},
	Alias: map[string]string{"perHour": "movesPerHour", "rate": "movesPerHour", "maxMoves": "movesPerHour", "consolidate": "emptyBelow", "consolidation": "emptyBelow", "scaleDownUtilizationThreshold": "emptyBelow", "quietHours": "quiet", "window": "quiet"},
}

const (
	maxPrefix = 43
	maxDomain = 100 // leaves room for three names before it in the 253 bytes of DNS
)

var cellNetworkRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "range", Rule: prefixRule},
		{Name: "range6", Rule: prefixRule},
		{Name: "subnetBits", Rule: integer(Count, minRangeBits, schema.MaxSubnetBits)},
		{Name: "subnetBits6", Rule: integer(Count, minRangeBits6, schema.MaxSubnetBits6)},
		{Name: "mode", Rule: aliased(words(schema.ModeRoutes, schema.ModeVXLAN, schema.ModeNone), map[string]string{
			"host-gw": "routes", "hostgw": "routes", "direct": "routes", "bgp": "none", "native": "none", "cloud": "none", "off": "none", "overlay": "vxlan", "tunnel": "vxlan", "geneve": "vxlan",
		}), Default: string(schema.ModeRoutes)},
		{Name: "mtu", Rule: integer(Count, schema.MinMTU, schema.MaxMTU)},
		{Name: "services", Rule: prefixRule},
		{Name: "services6", Rule: prefixRule},
		{Name: "domain", Rule: &Rule{Type: String, Min: 1, Max: maxDomain, Match: matchDomain}},
		{Name: "policy", Rule: aliased(words(schema.PolicyOpen, schema.PolicyClosed), map[string]string{"deny": "closed", "allow": "open", "default-deny": "closed"})},
		{Name: "cni", Rule: cniRule},
	},
	Alias: map[string]string{
		"plugins": "cni.plugins", "plugin": "cni.plugins", "cniVersion": "cni.cniVersion", "conflist": "cni", "CNI": "cni",
		"policies": "policy", "defaultPolicy": "policy", "default_action": "policy",
		"cidr": "range", "subnet": "range", "podCIDR": "range", "network": "range", "prefix": "range", "ipv4": "range", "ipv6": "range6", "cidr6": "range6",
		"nodeMask": "subnetBits", "subnetLen": "subnetBits", "SubnetLen": "subnetBits", "nodeCIDRMaskSize": "subnetBits", "backend": "mode", "type": "mode", "MTU": "mtu",
	},
}

var prefixRule = &Rule{Type: String, Min: 1, Max: maxPrefix, Match: matchPrefix}

var oversellRule = &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "batch", Rule: integer(Percent, 100, maxOversell)}},
	Never: map[string]string{
		"free":       "band free needs no quota, so there is none to oversell",
		"production": "quota at production is never oversold",
		"monitoring": "quota at monitoring is never oversold",
	},
}

var priorityRule = &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "value", Rule: integer(Count, 0, schema.MaxPriority), Required: true}},
	Alias:  map[string]string{"priority": "value", "number": "value", "level": "value", "weight": "value"},
}

var quotaRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "user", Rule: nameRule, Required: true},
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "band", Rule: soldBandRule, Required: true},
		{Name: "cpuMilli", Rule: integer(Milli, 0, maxQuotaMilli), Default: num(0)},
		{Name: "ramBytes", Rule: integer(Bytes, 0, maxQuotaBytes), Default: num(0)},
		{Name: "diskBytes", Rule: integer(Bytes, 0, maxQuotaBytes), Default: num(0)},
		{Name: "tasks", Rule: integer(Count, 0, maxQuotaTasks), Default: num(0)},
		{Name: "jobs", Rule: integer(Count, 0, maxQuotaJobs)},
		{Name: "from", Rule: timeRule},
		{Name: "until", Rule: timeRule},
	},
	Never: map[string]string{
		"oversell": "how much quota may be sold is set in oversellPercent of the cell", "oversellPercent": "how much quota may be sold is set in oversellPercent of the cell",
	},
	Alias: map[string]string{
		"cpu": "cpuMilli", "memory": "ramBytes", "mem": "ramBytes", "ram": "ramBytes", "disk": "diskBytes",
		"priority": "band", "owner": "user", "tenant": "user", "pods": "tasks",
		"start": "from", "begin": "from", "since": "from", "notBefore": "from",
		"end": "until", "expires": "until", "expiry": "until", "to": "until", "notAfter": "until",
	},
}

var serviceRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "user", Rule: nameRule, Required: true},
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "selector", Rule: jobSelectorRule, Required: true},
		{Name: "ports", Required: true, Rule: &Rule{Type: Map, Max: schema.MaxServicePorts, Key: matchName, Elem: servicePortRule}},
		{Name: "sticky", Rule: aliased(words(schema.StickyClient), map[string]string{"ClientIP": schema.StickyClient, "ip": schema.StickyClient, "source": schema.StickyClient})},
		{Name: "prefer", Rule: aliased(words(schema.PreferMachine), map[string]string{"local": schema.PreferMachine, "Local": schema.PreferMachine, "node": schema.PreferMachine})},
		{Name: "whenNoneReady", Rule: words(schema.SendAnyway, schema.Refuse), Default: schema.SendAnyway},
		{Name: "weights", Rule: &Rule{Type: List, Max: maxWeights, Elem: serviceWeightRule}},
	},
	Never: map[string]string{
		"tasks": "a service runs nothing: tasks are those of jobs, which selector picks", "task": "a service runs nothing: tasks are those of jobs, which selector picks",
		"labels": "a service has no labels: selector picks jobs by theirs", "address": "the cell gives each service its virtual address", "clusterIP": "the cell gives each service its virtual address",
	},
	Alias: map[string]string{
		"owner": "user", "namespace": "user", "match": "selector", "matchLabels": "selector", "jobs": "selector", "job": "selector",
		"port": "ports", "sessionAffinity": "sticky", "affinity": "sticky", "internalTrafficPolicy": "prefer", "trafficDistribution": "prefer", "local": "prefer",
		"weight": "weights", "canary": "weights", "publishNotReadyAddresses": "whenNoneReady",
	},
}

var servicePortRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "port", Rule: integer(Count, 1, 65535), Required: true},
		{Name: "target", Rule: nameRule},
		{Name: "protocol", Rule: aliased(words(schema.TCP, schema.UDP), map[string]string{"TCP": schema.TCP, "UDP": schema.UDP}), Default: schema.TCP},
	},
	Alias: map[string]string{"targetPort": "target", "to": "target", "number": "port"},
}

var serviceWeightRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "selector", Rule: jobSelectorRule, Required: true},
		{Name: "weight", Rule: integer(Count, 0, schema.MaxWeight), Required: true},
	},
	Alias: map[string]string{"match": "selector", "job": "selector", "percent": "weight", "share": "weight"},
}

// jobSelectorRule is the rule of selectors of jobs. What is wrong with one is said by
// selectorProblem: its column matters.
var jobSelectorRule = &Rule{Type: String, Min: 1, Max: maxSelector, Match: matchJobSelector}

func matchJobSelector(s string) string {
	if s == "" {
		return `a selector of labels of jobs, such as "tier=front" or "muster/job=web"`
	}
	return ""
}

var policyRule = &Rule{
	Type:   Struct,
	Fields: []Field{{Name: "from", Required: true, Rule: &Rule{Type: List, Max: schema.MaxPolicyPeers, Elem: policyPeerRule}}},
	Never: map[string]string{
		"to": "who may connect to a task is said by its job, and not where it may connect to", "egress": "who may connect to a task is said by its job, and not where it may connect to",
	},
	Alias: map[string]string{"ports": "from.ports", "port": "from.ports", "ingress": "from", "allow": "from", "sources": "from", "peers": "from"},
}

var policyPeerRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "users", Rule: &Rule{Type: List, Min: 1, Max: schema.MaxPolicyNames, Unique: true, Elem: &Rule{Type: String, Min: 1, Max: schema.MaxNameLen, Match: matchUser}}},
		{Name: "selector", Rule: jobSelectorRule},
		{Name: "ranges", Rule: &Rule{Type: List, Min: 1, Max: schema.MaxPolicyNames, Unique: true, Elem: &Rule{Type: String, Min: 1, Max: maxPrefix, Match: matchRange}}},
		{Name: "ports", Rule: &Rule{Type: List, Min: 1, Max: schema.MaxPolicyNames, Unique: true, Elem: nameRule}},
	},
	Alias: map[string]string{
		"port": "ports", "portNumbers": "ports", "user": "users", "namespaces": "users", "namespaceSelector": "users", "owners": "users", "labels": "selector", "podSelector": "selector", "matchLabels": "selector", "jobs": "selector", "job": "selector", "ipBlock": "ranges", "cidr": "ranges", "cidrs": "ranges", "addresses": "ranges", "range": "ranges",
	},
}

// hintPreemptible is how to say what some write otherwise.
const hintPreemptible = "preemptible: false says that tasks may not be preempted"

var jobRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "user", Rule: nameRule, Required: true},
		{Name: "cell", Rule: nameRule, Required: true},
		{Name: "kind", Rule: kindRule, Default: string(schema.Service)},
		{Name: "priority", Rule: jobPriorityRule, Default: string(schema.BandFree)},
		{Name: "appclass", Rule: appClassRule},
		{Name: "tasks", Rule: integer(Count, 0, schema.MaxTasks), Default: num(1)},
		{Name: "allocset", Rule: allocSetNameRule},
		{Name: "labels", Rule: labelsRule},
		{Name: "annotations", Rule: annotationsRule},
		{Name: "constraints", Rule: constraintsRule},
		{Name: "anyOf", Rule: anyOfRule},
		{Name: "tolerations", Rule: tolerationsRule},
		{Name: "preferences", Rule: preferencesRule},
		{Name: "affinity", Rule: affinityRule},
		{Name: "antiAffinity", Rule: affinityRule},
		{Name: "spread", Rule: spreadRule},
		{Name: "together", Rule: &Rule{Type: Bool}},
		{Name: "gang", Rule: nameRule},
		{Name: "rebalance", Rule: &Rule{Type: Bool}},
		{Name: "preemptible", Rule: &Rule{Type: Bool}},
		{Name: "task", Rule: taskRule, Required: true},
		{Name: "update", Rule: updateRule, Default: map[string]any{}},
		{Name: "silence", Rule: silenceRule},
		{Name: "disruption", Rule: disruptionRule},
		{Name: "prune", Rule: &Rule{Type: Bool}},
		{Name: "policy", Rule: policyRule},
	},
	Never: map[string]string{"nonPreemptible": hintPreemptible, "non_preemptible": hintPreemptible},
	Later: []string{
		"after", "schedule", "overrides",
		"packages", "logs",
	},
	Alias: map[string]string{
		"replicas": "tasks", "replica": "tasks", "count": "tasks", "instances": "tasks", "size": "tasks", "owner": "user", "namespace": "user",
		"rebalancing": "rebalance", "safeToEvict": "rebalance", "safe-to-evict": "rebalance",
		"preemptable": "preemptible", "preemption": "preemptible", "evictable": "preemptible",
		"type": "kind", "priorityClassName": "priority", "group": "task", "template": "task", "process": "task.process",
		"command": "task.process.command", "resources": "task.resources", "env": "task.env", "health": "task.health",
		"graceSeconds": "task.graceSeconds", "ports": "task.resources.ports", "strategy": "update", "region": "cell",
		"datacenters": "cell", "datacenter": "cell", "container": "task.container", "image": "task.container.image",
		"driver": "task.process", "config": "task.process", "args": "task.process.command", "cmd": "task.process.command",
		"environment": "task.env", "spec": "task", "containers": "task.container", "metadata": "labels", "meta": "labels",
		"tags": "labels", "cpu": "task.resources.cpuMilli", "memory": "task.resources.ramBytes", "cpuMilli": "task.resources.cpuMilli",
		"ramBytes": "task.resources.ramBytes", "diskBytes": "task.resources.diskBytes", "healthcheck": "task.health",
		"restart": "task.restart", "restartPolicy": "task.restart", "backoffLimit": "task.restart.attempts",
		"networkPolicy": "policy", "policies": "policy", "ingress": "policy", "intentions": "policy", "from": "policy.from",
		"constraint": "constraints", "nodeSelector": "constraints", "nodeAffinity": "constraints", "nodeSelectorTerms": "anyOf", "or": "anyOf", "any": "anyOf", "alternatives": "anyOf", "podAffinity": "affinity", "podAntiAffinity": "antiAffinity",
		"topologySpreadConstraints": "spread", "devices": "task.resources.devices",
		"appClass": "appclass", "app_class": "appclass", "qosClass": "appclass", "qos": "appclass", "wholeCores": "task.resources.wholeCores",
		"disruptionBudget": "disruption", "podDisruptionBudget": "disruption", "maxDown": "disruption.maxDown", "migrate": "disruption",
		"alloc": "allocset", "allocSet": "allocset", "alloc_set": "allocset", "reservation": "allocset",
		"lost": "silence", "disconnect": "silence", "stop_after_client_disconnect": "silence", "max_client_disconnect": "silence.afterSeconds",
		"neverTwice": "silence.neverTwice", "toleration": "tolerations", "tolerates": "tolerations", "tolerationSeconds": "silence.afterSeconds",
	},
}

var labelsRule = &Rule{
	Type: Map, Max: maxLabels, Key: matchLabelKey,
	Elem: &Rule{Type: String, Max: 255, Match: matchLine},
}

var annotationsRule = &Rule{
	Type: Map, Max: maxNotes, Key: matchLabelKey, Total: maxNotesBytes, Instead: "store long text elsewhere, and link to it",
	Elem: &Rule{Type: String, Max: maxNote, Match: matchText},
}

// allocSetNameRule is nameRule where it stands for a declared alloc set.
var allocSetNameRule = &Rule{Type: String, Min: 1, Max: schema.MaxNameLen, Match: matchName, Refers: schema.KindAllocSet}

var jobPriorityRule = &Rule{
	Type: Priority, Max: schema.MaxPriority, Words: bandRule.Words, Refers: schema.KindPriority,
	Alias: map[string]string{
		"prod": "production", "high": "production", "low": "free", "default": "free", "best-effort": "free", "besteffort": "free",
		"critical": "monitoring", "system-cluster-critical": "monitoring", "system-node-critical": "monitoring",
	},
}

var taskRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "process", Rule: processRule},
		{Name: "container", Rule: containerRule},
		{Name: "before", Rule: &Rule{Type: List, Max: schema.MaxBefore, Elem: beforeRule}},
		{Name: "resources", Rule: resourcesRule, Default: map[string]any{}},
		{Name: "env", Rule: &Rule{
			Type: Map, Max: maxEnv, Key: matchEnv, Total: maxEnvBytes, Instead: elsewhere,
			Elem: &Rule{Type: String, Max: maxArgBytes, Match: matchC},
		}},
		{Name: "graceSeconds", Rule: integer(Seconds, 0, maxSeconds), Default: num(10)},
		{Name: "stop", Rule: stopRule},
		{Name: "health", Rule: healthRule},
		{Name: "restart", Rule: restartRule},
		{Name: "exceed", Rule: exceedRule},
		{Name: "logs", Rule: logsRule},
		{Name: "limits", Rule: limitsRule},
		{Name: "isolation", Rule: isolationRule},
		{Name: "capabilities", Rule: capabilitiesRule},
		{Name: "files", Rule: filesRule},
		{Name: "secrets", Rule: taskSecretsRule},
		{Name: "sticky", Rule: &Rule{Type: Bool, Words: []string{string(schema.StickyStay)}}},
		{Name: "packages", Rule: packagesRule},
		{Name: "volumes", Rule: volumesRule},
	},
	Alias: map[string]string{
		"burst": "exceed", "burstable": "exceed", "memory_max": "exceed.ram", "memory_hard_limit": "exceed.ram", "cpu_hard_limit": "exceed.cpu",
		"wholeCores": "resources.wholeCores", "appclass": "appclass of the job",
		"environment": "env", "command": "process.command", "cmd": "process.command", "args": "process.command",
		"devices": "resources.devices", "firstOf": "resources.firstOf", "firstAvailable": "resources.firstOf", "constraints": "constraints of the job", "image": "container.image", "ports": "resources.ports", "cpuMilli": "resources.cpuMilli",
		"ramBytes": "resources.ramBytes", "diskBytes": "resources.diskBytes", "grace": "graceSeconds",
		"initContainers": "before", "init": "before", "prestart": "before", "preStart": "before", "initContainer": "before",
		"kill_signal": "stop.signal", "stopSignal": "stop.signal", "stop_signal": "stop.signal", "preStop": "stop.command", "lifecycle": "stop",
		"kill_timeout": "graceSeconds", "terminationGracePeriodSeconds": "graceSeconds", "check": "health",
		"healthcheck": "health", "livenessProbe": "health", "readinessProbe": "health", "startupProbe": "health", "containers": "container", "docker": "container", "oci": "container", "pod": "container",
		"restartPolicy": "restart", "restart_policy": "restart", "backoff": "restart", "portNumbers": "resources.portNumbers",
		"driver": "process", "config": "process.command", "exec": "process.command", "entrypoint": "container.command", "workdir": "container.workdir", "readOnly": "container.readOnly",
		"cpu": "resources.cpuMilli", "memory": "resources.ramBytes", "ulimit": "limits", "ulimits": "limits", "rlimits": "limits", "pids_limit": "limits.processes",
		"log": "logs", "logging": "logs", "logConfig": "logs",
		"cap_add": "capabilities.add", "cap_drop": "capabilities.drop", "capAdd": "capabilities.add", "capDrop": "capabilities.drop",
		"securityContext": "isolation", "sandbox": "isolation", "security": "isolation", "network": "isolation.network",
		"root": "process.root", "chroot": "process.root", "configMap": "files", "configs": "files", "volume": "volumes", "volumeMounts": "volumes", "volume_mount": "volumes", "mounts": "volumes", "tmpfs": "volumes", "artifact": "packages", "artifacts": "packages", "secret": "secrets", "vault": "secrets", "secretKeyRef": "secrets", "secretName": "secrets",
		"stickyDir": "sticky", "ephemeral_disk": "sticky",
	},
}

var logsRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "maxBytes", Rule: integer(Bytes, minLogBytes, maxLogBytes), Default: num(schema.DefaultLogBytes)},
		{Name: "files", Rule: integer(Count, minLogFiles, maxLogFiles), Default: num(schema.DefaultLogFiles)},
	},
	Alias: map[string]string{
		"maxSize": "maxBytes", "max_size": "maxBytes", "max-size": "maxBytes", "size": "maxBytes", "max_file_size": "maxBytes", "containerLogMaxSize": "maxBytes",
		"bytes": "maxBytes", "maxFiles": "files", "max_files": "files", "max-file": "files", "containerLogMaxFiles": "files", "rotate": "files",
	},
}

var limitsRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "processes", Rule: integer(Count, minProcesses, maxProcesses), Default: num(schema.DefaultProcesses)},
		{Name: "files", Rule: integer(Count, minFiles, maxOpenFiles)},
		{Name: "coreBytes", Rule: integer(Bytes, 0, maxDiskBytes), Default: num(0)},
	},
	Alias: map[string]string{
		"pids": "processes", "nproc": "processes", "pidsLimit": "processes", "pids_limit": "processes", "threads": "processes", "tasks": "processes", "TasksMax": "processes",
		"nofile": "files", "openFiles": "files", "descriptors": "files", "fds": "files", "LimitNOFILE": "files",
		"core": "coreBytes", "coreSize": "coreBytes", "LimitCORE": "coreBytes",
		"cpu": "task.resources.cpuMilli", "cpuMilli": "task.resources.cpuMilli", "memory": "task.resources.ramBytes", "ramBytes": "task.resources.ramBytes",
		"diskBytes": "task.resources.diskBytes", "ephemeral-storage": "task.resources.diskBytes",
	},
}

var exceedRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "cpu", Rule: &Rule{Type: Bool}, Default: true},
		{Name: "ram", Rule: &Rule{Type: Bool}, Default: false},
	},
	Never: map[string]string{"disk": "disk space cannot be reclaimed from a task"},
	Alias: map[string]string{"cpuMilli": "cpu", "cpus": "cpu", "memory": "ram", "mem": "ram", "ramBytes": "ram"},
}

// elsewhere is what to do with much text. Each machine is sent a job as one message, and one
// that it cannot be sent would keep all others from it.
const elsewhere = "put larger data on the machine, or where the task can download it"

var commandRule = &Rule{
	Type: List, Min: 1, Max: maxArgs, Total: maxArgsBytes, Instead: elsewhere, Elem: &Rule{Type: String, Max: maxArgBytes, Match: matchC},
}

var processRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "command", Required: true, Rule: commandRule},
		{Name: "root", Rule: &Rule{Type: String, Min: 1, Max: maxPath, Match: matchRoot}},
	},
	Alias: map[string]string{"cmd": "command", "exec": "command", "argv": "command", "args": "command", "env": "task.env", "chroot": "root", "rootfs": "root", "rootDirectory": "root"},
}

var resourcesRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "cpuMilli", Rule: integer(Milli, 1, maxCPUMilli), Default: num(100)},
		{Name: "ramBytes", Rule: integer(Bytes, mib, maxRAMBytes), Default: num(64 * mib)},
		{Name: "diskBytes", Rule: integer(Bytes, 0, maxDiskBytes), Default: num(64 * mib)},
		{Name: "ports", Rule: &Rule{Type: List, Max: maxPorts, Unique: true, Elem: nameRule}},
		{Name: "portNumbers", Rule: &Rule{Type: Map, Max: maxPorts, Key: matchName, Elem: integer(Count, 1, 65535)}},
		{Name: "devices", Rule: devicesRule},
		{Name: "firstOf", Rule: firstOfRule},
		{Name: "wholeCores", Rule: &Rule{Type: Bool}},
	},
	Later: []string{"network"},
	Alias: map[string]string{
		"cores": "wholeCores", "cpuset": "wholeCores", "cpuset_cpus": "wholeCores", "reserved_cores": "wholeCores", "exclusive": "wholeCores",
		"cpu": "cpuMilli", "cpus": "cpuMilli", "memory": "ramBytes", "mem": "ramBytes", "ram": "ramBytes",
		"gpu": "devices.gpu", "gpus": "devices.gpu", "gpuMilli": "devices.gpu.milli", "device": "devices", "firstAvailable": "firstOf", "first_available": "firstOf", "oneOf": "firstOf", "anyOf": "firstOf", "alternatives": "firstOf", "prioritizedList": "firstOf",
		"disk": "diskBytes", "storage": "diskBytes", "limits": "cpuMilli, ramBytes, diskBytes directly",
		"requests": "cpuMilli, ramBytes, diskBytes directly", "port": "ports", "hostPort": "portNumbers", "static": "portNumbers", "portNumber": "portNumbers", "memoryMB": "ramBytes", "memory_mb": "ramBytes",
		"memory_max": "ramBytes", "memoryMi": "ramBytes", "disk_mb": "diskBytes", "ephemeralStorage": "diskBytes",
	},
}

var updateRule = &Rule{
	Type: Struct,
	Fields: append(parallelFields[:len(parallelFields):len(parallelFields)],
		Field{Name: "canary", Rule: canaryRule},
		Field{Name: "progressDeadlineSeconds", Rule: integer(Seconds, 1, maxDaySeconds), Former: "progressSeconds", Since: "0.1"},
		Field{Name: "onFailure", Rule: aliased(words(schema.Pause, schema.Return), onFailureAlias)},
	),
	Alias: map[string]string{
		"max_parallel": "maxParallel", "maxUnavailable": "maxParallel", "min_healthy_time": "minHealthySeconds",
		"minReadySeconds": "minHealthySeconds", "parallelism": "maxParallel", "maxSurge": "maxParallel", "rollingUpdate": "maxParallel",
		"progress_deadline": "progressDeadlineSeconds", "healthy_deadline": "progressDeadlineSeconds", "deadline": "progressDeadlineSeconds",
		"auto_revert": "onFailure", "autoRevert": "onFailure", "failure_action": "onFailure", "failureAction": "onFailure", "rollback": "onFailure",
		"auto_promote": "canary.promote", "autoPromote": "canary.promote", "canaries": "canary",
	},
}

var onFailureAlias = map[string]string{
	"rollback": "return", "revert": "return", "undo": "return", "stop": "pause", "hold": "pause", "none": "pause", "wait": "pause",
}

// parallelFields are those of an update that an alloc set has too.
var parallelFields = []Field{
	{Name: "maxParallel", Rule: integer(Count, 1, schema.MaxTasks), Default: num(1)},
	{Name: "minHealthySeconds", Rule: integer(Seconds, 0, maxSeconds), Default: num(0)},
}

var allocUpdateRule = &Rule{
	Type:   Struct,
	Fields: parallelFields,
	Never: map[string]string{
		"canary":                  "an alloc runs nothing that could fail: the jobs inside have canaries",
		"progressDeadlineSeconds": "an alloc runs nothing that could fail: the jobs inside have deadlines",
		"progressSeconds":         "an alloc runs nothing that could fail: the jobs inside have deadlines",
		"onFailure":               "an alloc runs nothing that could fail: set it in the jobs inside",
	},
	Alias: map[string]string{"max_parallel": "maxParallel", "maxUnavailable": "maxParallel", "minReadySeconds": "minHealthySeconds"},
}

var canaryRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "tasks", Rule: integer(Count, 1, schema.MaxTasks), Default: num(1)},
		{Name: "waitSeconds", Rule: integer(Seconds, 0, maxDaySeconds), Default: num(defaultCanaryWait)},
		{Name: "promote", Rule: aliased(words(schema.PromoteAuto, schema.PromoteCommit), map[string]string{
			"automatic": "auto", "manual": "commit", "trailer": "commit",
		}), Default: string(schema.PromoteAuto)},
	},
	Alias: map[string]string{
		"count": "tasks", "replicas": "tasks", "size": "tasks", "wait": "waitSeconds", "pause": "waitSeconds", "duration": "waitSeconds",
		"bakeSeconds": "waitSeconds", "auto": "promote", "autoPromote": "promote", "auto_promote": "promote",
	},
}

var disruptionRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "maxDown", Rule: integer(Count, 1, schema.MaxTasks)},
		{Name: "perHour", Rule: integer(Count, 1, schema.MaxTasks)},
	},
	Alias: map[string]string{
		"maxUnavailable": "maxDown", "max_down": "maxDown", "atOnce": "maxDown", "maxParallel": "maxDown", "max_parallel": "maxDown",
		"minAvailable": "maxDown", "minHealthy": "maxDown", "hourly": "perHour", "maxPerHour": "perHour", "per_hour": "perHour", "rate": "perHour",
	},
}
