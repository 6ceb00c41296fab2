package rules

import "strings"

// layer says what of ours a package may import. A package belongs to the first
// row that matches it, and every package has a row.
type layer struct {
	pkg    string
	may    []string
	reason string
}

// layers point down: cmd → reconciler, nodeagent → placement → schema.
var layers = []layer{
	{
		"schema",
		[]string{"schema/strictjson"},
		"schema is the words that all packages share: it cannot depend on one that speaks them",
	},
	{
		"schema/compile",
		[]string{"schema", "schema/cue", "schema/valid", "schema/compile/cases", "schema/compile/cut", "schema/compile/edit", "schema/compile/lax", "schema/compile/policytext", "schema/compile/stage", "schema/compile/syntax", "schema/compile/terms", "schema/compile/trace", "schema/compile/walk", "schema/lazyregexp", "schema/vendored"},
		"compilation is a function of a commit's files and knows nothing of a running cell",
	},
	{
		"schema/vendored",
		[]string{"schema", "schema/lazyregexp"},
		"what is vendored is held against sums by whoever has the files, and read by nobody else",
	},
	{
		"schema/compile/cases",
		[]string{"schema/cue", "schema/compile/lax"},
		"the syntax of tests knows nothing of how they are evaluated",
	},
	{
		"schema/compile/edit",
		[]string{"schema", "schema/lazyregexp"},
		"where a text is to be changed needs its syntax alone",
	},
	{
		"schema/compile/lax",
		[]string{"schema/cue"},
		"the syntax of definitions and libraries knows nothing of what is made of it",
	},
	{
		"schema/compile/walk",
		[]string{"schema/compile/lax"},
		"where a file writes something is found out of its syntax alone",
	},
	{
		"schema/compile/policytext",
		[]string{"schema", "schema/valid", "schema/compile/lax", "schema/compile/walk"},
		"what a policy says is compared with the rules of objects, by its syntax",
	},
	{
		"schema/compile/trace",
		[]string{"schema", "schema/lazyregexp", "schema/compile/terms"},
		"what a check looks at is said by its syntax",
	},
	{
		"schema/compile/syntax",
		[]string{"schema", "schema/lazyregexp"},
		"the words for what does not parse need the text alone",
	},
	{
		"schema/compile/synthetic",
		[]string{"schema", "schema/cue"},
		"a repository made for a benchmark holds the definitions",
	},
	{
		"schema/scaffold",
		[]string{"schema", "schema/cue", "schema/lazyregexp"},
		"a new config repository holds the definitions",
	},
	{
		"schema/atomicfile", nil,
		"master, agent and keeper write files that must not be torn, and neither side imports the other: " +
			"so it lies below both, and imports nothing",
	},
	{
		"schema/lazyregexp", nil,
		"it holds what it is given until that is used",
	},
	{
		"schema/strictjson", nil,
		"it reads JSON into any type",
	},
	{
		"schema/archive", nil,
		"files are copied between the command line and a program inside a task, and neither side imports the other: it lies below both",
	},
	{
		"schema/turns", nil,
		"tests of all layers take turns by one variable, so it lies below them",
	},
	{
		"schema/thread", nil,
		"it runs what it is given",
	},
	{
		"schema/filelock",
		[]string{"schema/atomicfile"},
		"master, agent and keeper each hold a directory alone: as schema/atomicfile, it lies below both sides",
	},
	{
		"schema/valid",
		[]string{"schema", "schema/lazyregexp", "schema/sealed", "schema/sops"},
		"what is no age file is no secret; that can be seen without a key",
	},
	{
		"schema/...",
		[]string{"schema", "schema/lazyregexp"},
		"forms of the schema (CUE, protobuf) are as low as the schema itself",
	},
	{
		"placement/layers", nil,
		"lists and maps know nothing of what they hold",
	},
	{
		"placement/layout", nil,
		"an order of machines knows their names and one attribute, and nothing else",
	},
	{
		"placement/ports", nil,
		"which ports are taken is a question to one machine",
	},
	{
		"placement/device", nil,
		"which devices are chosen is a question to one machine",
	},
	{
		"placement/tournament",
		[]string{"placement/layout"},
		"which candidate is the best is found out of scores and domains alone",
	},
	{
		"placement/backfill", nil,
		"what is left of a machine is a sum of amounts",
	},
	{
		"placement/packages",
		[]string{"placement/layers"},
		"which machines hold what is asked for by its number",
	},
	{
		"placement/mix",
		[]string{"placement/device"},
		"what asks are typical is found out of amounts and devices alone",
	},
	{
		"placement",
		[]string{"placement/backfill", "placement/device", "placement/layers", "placement/layout", "placement/mix", "placement/packages", "placement/ports", "placement/tournament", "schema"},
		"placement decides from a snapshot; who took it and who acts on it is not its business",
	},
	{
		"placement/pack",
		[]string{"placement", "placement/reserve", "placement/workload", "schema"},
		"a trace and what is made up are cells alike, and are packed alike",
	},
	{
		"placement/experiment",
		[]string{"placement", "placement/pack", "placement/workload", "schema"},
		"an experiment packs what is made up in several ways",
	},
	{
		"placement/workload",
		[]string{"placement", "placement/reserve", "schema"},
		"what is made up is estimated to need what a cell would estimate",
	},
	{
		"placement/...",
		[]string{"placement", "schema"},
		"what lies below placement serves placement",
	},
	{
		"reconciler/model",
		[]string{"schema"},
		"what is stored and what is reported know nothing of what is decided by them",
	},
	{
		"reconciler/secrets",
		[]string{"schema", "schema/sealed", "schema/sops"},
		"what opens secrets knows ciphertexts and identities, and nothing of what they are for",
	},
	{
		"reconciler/intent",
		[]string{"reconciler/model", "schema", "schema/sealed", "schema/valid"},
		"what is wanted depends on commits and on what is stored, and not on what there is room for",
	},
	{
		"reconciler/quota",
		[]string{"reconciler/intent", "reconciler/model", "schema"},
		"a job is admitted by what is wanted and by what runs, and not by where there is room",
	},
	{
		"reconciler/control/facts",
		[]string{"reconciler/intent", "reconciler/model", "schema"},
		"a question can neither write nor book what it does not know: the draft and the controllers lie above it",
	},
	{
		"reconciler/control/draft",
		[]string{"reconciler/control/facts", "reconciler/model", "schema"},
		"what is changed does not depend on why: nothing decides in it",
	},
	{
		"reconciler/control/snapshot",
		[]string{"reconciler/control/facts", "reconciler/intent", "reconciler/model", "placement", "schema"},
		"whether a task fits does not depend on who asks",
	},
	{
		"reconciler/control",
		[]string{"reconciler/control/draft", "reconciler/control/facts", "reconciler/control/snapshot", "reconciler/intent", "reconciler/model", "reconciler/quota", "placement", "placement/rebalance", "schema"},
		"what is decided does not depend on how it is presented",
	},
	{
		"reconciler/status",
		[]string{"reconciler/control", "reconciler/control/facts", "reconciler/control/snapshot", "reconciler/intent", "reconciler/model", "reconciler/quota", "placement", "schema"},
		"what users see follows from what is stored, reported and decided, and never from a draft",
	},
	{
		"reconciler",
		[]string{"placement/reserve", "reconciler/control", "reconciler/intent", "reconciler/model", "reconciler/quota", "reconciler/sources", "reconciler/status", "schema"},
		"a core that imports an adapter can no longer be simulated; what the names in a commit stand for is a rule of the schema",
	},
	{
		"reconciler/checkpoint",
		[]string{"reconciler/control", "reconciler/intent", "reconciler/model", "reconciler/parallel", "reconciler/status", "schema"},
		"a cell in a file is looked at as a live one is, and knows nothing of files and masters",
	},
	{
		"reconciler/compact",
		[]string{"placement", "placement/pack", "reconciler/control", "reconciler/control/facts", "reconciler/control/snapshot", "reconciler/intent", "reconciler/model", "schema"},
		"what a cell would need is a question to placement, and what it could do to those that decide; it changes nothing",
	},
	{
		"reconciler/plan",
		[]string{"reconciler", "reconciler/intent", "reconciler/model", "reconciler/quota", "reconciler/status", "schema"},
		"what a cell would do is decided by the master, and by nothing that only plans",
	},
	{
		"reconciler/fastforward",
		[]string{"reconciler/model", "reconciler/plan", "placement", "placement/workload", "schema"},
		"what happens in a cell that is played is decided by the master, and by nothing that plays",
	},
	{
		"reconciler/replay",
		[]string{"reconciler", "reconciler/model", "reconciler/plan", "schema"},
		"what a log is compared with is decided by the master, and by nothing that plays",
	},
	{
		"reconciler/history",
		[]string{"reconciler/checkpoint", "reconciler/plan", "schema", "schema/atomicfile"},
		"what happened is compared with what was planned by what events say, and by nothing of the master",
	},
	{
		"reconciler/local", nil,
		"who is at the other end of a connection within this machine is nothing of ours",
	},
	{
		"reconciler/denied",
		[]string{"schema"},
		"what is refused is reported in one way, whoever refuses it",
	},
	{
		"reconciler/shard",
		[]string{"reconciler/model", "schema"},
		"which sessions there are, and what the leader is to learn of them, depends on no connection",
	},
	{
		"reconciler/sources",
		[]string{"schema"},
		"who is to ask whom depends on what machines hold, and on nothing of the master",
	},
	{
		"reconciler/relay",
		[]string{"reconciler/local", "reconciler/model", "reconciler/shard", "schema", "schema/identity", "schema/linkpb"},
		"masters speak the same protobuf with each other as with agents, and nothing else of ours",
	},
	{
		"reconciler/replica",
		[]string{"reconciler/status", "schema", "schema/identity", "schema/linkpb"},
		"what users see is all that one master sends another for its readers",
	},
	{
		"reconciler/link",
		[]string{"reconciler/denied", "reconciler/model", "reconciler/local", "schema", "schema/identity", "schema/linkpb"},
		"only the two ends of the link speak its protobuf",
	},
	{
		"reconciler/pki",
		[]string{"reconciler/failpoint", "reconciler/model", "schema", "schema/atomicfile", "schema/identity"},
		"what a certificate and a token say is the same at both ends",
	},
	{
		"reconciler/store",
		[]string{"reconciler/failpoint", "reconciler/model", "schema", "schema/atomicfile", "schema/filelock"},
		"the store keeps what the core gives it, and its files are whole",
	},
	{
		"reconciler/web/...",
		[]string{"reconciler", "reconciler/control", "reconciler/denied", "reconciler/model", "reconciler/status", "reconciler/local", "schema", "schema/identity", "schema/lazyregexp", "reconciler/web/..."},
		"the API and its client share their requests, and know of the cell only its status",
	},
	{
		"reconciler/failpoint", nil,
		"it marks writes of all kinds, and knows none of them",
	},
	{
		"reconciler/events",
		[]string{"reconciler/failpoint", "schema"},
		"what has happened is written down whatever has decided it",
	},
	{
		"reconciler/parallel", nil,
		"it makes the calls that it is given",
	},
	{
		"reconciler/loop",
		[]string{"reconciler", "reconciler/control", "reconciler/model", "reconciler/parallel", "reconciler/status", "schema"},
		"the loop knows its master, and the goroutines that the master's calls are made from; adapters are put together in cmd/internal/cell",
	},
	{
		"reconciler/fswatch", nil,
		"that a file has changed is nothing of ours",
	},
	{
		"reconciler/git",
		[]string{"reconciler/failpoint", "reconciler/model", "reconciler/status", "reconciler/fswatch", "reconciler/look", "schema"},
		"a source of commits sees at once that a file has changed, or that it is asked to look",
	},
	{
		"reconciler/worktree",
		[]string{"reconciler/model", "reconciler/status", "reconciler/fswatch", "reconciler/look", "schema"},
		"a source of commits sees at once that a file has changed, or that it is asked to look",
	},
	{
		"reconciler/...",
		[]string{"reconciler", "reconciler/control", "reconciler/model", "reconciler/status", "schema"},
		"adapters meet through interfaces that their consumer declares, and are put together in cmd/internal/cell; " +
			"the master and the agent share only the schema, or one could not be upgraded without the other",
	},
	{
		"nodeagent",
		[]string{"placement", "schema"},
		"a core that imports an adapter can no longer be simulated",
	},
	{
		"nodeagent/naming",
		[]string{"schema"},
		"what a machine knows of its cell depends neither on how it learned it nor on who asks",
	},
	{
		"nodeagent/durable",
		[]string{"schema/atomicfile"},
		"it is part of each keeper, and of all who must not forget",
	},
	{
		"nodeagent/logfile", nil,
		"it is part of each keeper, and of all who read what keepers write",
	},
	{
		"nodeagent/dial", nil,
		"it connects, and knows neither master nor task",
	},
	{
		"nodeagent/trash", nil,
		"it removes trees and knows nothing of tasks",
	},
	{
		"nodeagent/spread", nil,
		"it says how directories lie on a disk, and not what they are for",
	},
	{
		"nodeagent/image/peer",
		[]string{"nodeagent/image", "schema", "schema/lazyregexp"},
		"it carries blobs between stores, and knows a machine by what its certificate says alone",
	},
	{
		"nodeagent/image",
		[]string{"nodeagent/durable", "nodeagent/trash", "schema", "schema/atomicfile", "schema/lazyregexp"},
		"it stores what registries have, and knows neither tasks nor how they are run",
	},
	{
		"nodeagent/cgroup", nil,
		"it is part of each keeper, and of all who look into cgroups",
	},
	{
		"nodeagent/bundle", nil,
		"it is part of each keeper",
	},
	{
		"nodeagent/relay", nil,
		"it is part of each keeper",
	},
	{
		"nodeagent/network/netfilter", nil,
		"it is what all tables of nftables share, and knows none of them",
	},
	{
		"nodeagent/network/namespace",
		[]string{"schema/thread"},
		"a namespace is the same whoever puts what into it",
	},
	{
		"nodeagent/network/cni",
		[]string{"nodeagent/network/namespace", "schema", "schema/atomicfile", "schema/thread"},
		"it makes networks for keys that mean nothing to it, as nodeagent/network does, and neither knows the other",
	},
	{
		"nodeagent/network",
		[]string{"nodeagent/network/namespace", "nodeagent/network/netfilter", "schema"},
		"it makes networks for keys that mean nothing to it, and is put together with those who run tasks",
	},
	{
		"nodeagent/network/dns",
		[]string{"nodeagent/naming", "schema"},
		"names are answered from what is known, whatever else the machine does",
	},
	{
		"nodeagent/directory",
		[]string{"nodeagent/durable", "nodeagent/naming", "schema"},
		"who brings changes of the directory and who acts by them do not know each other",
	},
	{
		"nodeagent/network/policy",
		[]string{"nodeagent/naming", "schema"},
		"who may connect follows from what runs here and from the directory, and not from who says so",
	},
	{
		"nodeagent/network/policy/kernel",
		[]string{"nodeagent/network/netfilter", "nodeagent/network/policy"},
		"it programs a state, and knows nothing of where that is from",
	},
	{
		"nodeagent/network/services",
		[]string{"nodeagent/naming", "schema"},
		"what the kernel needs to know follows from where tasks are, and not from who says so",
	},
	{
		"nodeagent/network/services/servicestest",
		[]string{"nodeagent/network/services"},
		"it makes services for tests and benchmarks",
	},
	{
		"nodeagent/network/services/kernel",
		[]string{"nodeagent/naming", "nodeagent/network/netfilter", "nodeagent/network/services", "schema/filelock"},
		"it programs what was planned from a directory, and knows nothing of who sends that",
	},
	{
		"nodeagent/keeper",
		[]string{"nodeagent/bundle", "nodeagent/cgroup", "nodeagent/durable", "nodeagent/logfile", "nodeagent/relay", "schema/archive", "schema/atomicfile", "schema/filelock"},
		"one keeper runs per task: each package it links costs memory a hundred times per machine",
	},
	{
		"nodeagent/link",
		[]string{"nodeagent", "nodeagent/dial", "schema", "schema/identity", "schema/linkpb"},
		"only the two ends of the link speak its protobuf",
	},
	{
		"nodeagent/credential",
		[]string{"nodeagent/durable", "schema", "schema/identity"},
		"what a certificate and a token say is the same at both ends",
	},
	{
		"nodeagent/host",
		[]string{"nodeagent", "nodeagent/cgroup", "nodeagent/durable", "schema"},
		"it is below each way of running a task, of processes as of containers, and knows none of them",
	},
	{
		"nodeagent/host/hosttest", nil,
		"it makes what tests of tasks need of a machine, such as a disk, and knows no task",
	},
	{
		"nodeagent/image/imagetest", nil,
		"it makes images and a registry for tests, as they come from others",
	},
	{
		"nodeagent/secrets",
		[]string{"schema", "schema/atomicfile", "schema/sealed"},
		"it opens what was sealed for the machine, and knows neither how tasks are run nor who sent it",
	},
	{
		"nodeagent/runtime/...",
		[]string{"nodeagent", "nodeagent/bundle", "nodeagent/cgroup", "nodeagent/durable", "nodeagent/host", "nodeagent/image", "nodeagent/keeper", "nodeagent/logfile", "nodeagent/relay", "nodeagent/runtime/...", "nodeagent/secrets", "schema", "schema/thread"},
		"a runtime starts keepers, on what the host gives to all, of images that are there; it does not know who asked",
	},
	{
		"nodeagent/loop",
		[]string{"nodeagent", "nodeagent/dial", "nodeagent/durable", "nodeagent/logfile", "nodeagent/spread", "nodeagent/trash", "schema", "schema/atomicfile", "schema/filelock"},
		"the loop owns the state directory, and meets its adapters through interfaces that it declares",
	},
	{
		"nodeagent/hollow",
		[]string{"nodeagent", "nodeagent/link", "schema"},
		"a hollow machine is the real agent over the real link with nothing below",
	},
	{
		"nodeagent/...",
		[]string{"nodeagent", "nodeagent/durable", "nodeagent/keeper", "nodeagent/logfile", "schema"},
		"adapters meet through interfaces that their consumer declares; the keeper's file formats are shared by all who read a task directory; " +
			"the master and the agent share only the schema, or one could not be upgraded without the other",
	},
	{
		"cmd/muster-keeper",
		[]string{"nodeagent/keeper"},
		"one keeper runs per task: each package it links costs memory a hundred times per machine",
	},
	{
		"cmd/muster-agent",
		[]string{"nodeagent/...", "schema", "schema/identity", "cmd/internal/..."},
		"an agent runs on every machine and must not link what only the master needs",
	},
	{
		"cmd/...",
		[]string{"..."},
		"commands are where everything is put together",
	},
}

// inTests says what of ours the tests below a directory may import beyond their
// package's layer: the adapters of one side meet there (a loop is tested with
// the memory store, a runtime with the keeper), the two sides only in cmd.
var inTests = map[string][]string{
	"schema":     {"schema/..."},
	"placement":  {"schema/...", "placement/..."},
	"reconciler": {"schema/...", "placement/...", "reconciler/..."},
	"nodeagent":  {"schema/...", "placement/...", "nodeagent/..."},
	"cmd":        {"..."},
}

func checkLayers(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		row := layerOf(f.dir)
		if row == nil {
			out = append(out, fault{f.path, "no row of the table of layers matches this package"})
			continue
		}
		for _, s := range f.ast.Imports {
			dir, ok := ours(imported(s))
			side, _, _ := strings.Cut(f.dir, "/")
			if !ok || dir == f.dir || matches(dir, row.may) || f.test && matches(dir, inTests[side]) {
				continue
			}
			out = append(out, t.fault(s, "%s imports %s: %s", f.dir, dir, row.reason))
		}
	}
	return out
}

func layerOf(dir string) *layer {
	for i := range layers {
		if matches(dir, []string{layers[i].pkg}) {
			return &layers[i]
		}
	}
	return nil
}

// keeperPackages are linked into the keeper.
var keeperPackages = []string{"nodeagent/keeper", "cmd/muster-keeper"}

func checkKeeper(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || !matches(f.dir, keeperPackages) {
			continue
		}
		for _, s := range f.ast.Imports {
			p := imported(s)
			if _, mine := ours(p); mine || standard(p) || strings.HasPrefix(p, "golang.org/x/sys/") {
				continue
			}
			out = append(out, t.fault(s, "the keeper imports %s: it takes the standard library and x/sys only, since one runs per task", p))
		}
	}
	return out
}

// checkDotImports finds imports that the rules on selectors cannot see through.
func checkDotImports(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		for _, s := range f.ast.Imports {
			if s.Name != nil && s.Name.Name == "." {
				out = append(out, t.fault(s, "dot import of %s: a reader cannot see where a name comes from", imported(s)))
			}
		}
	}
	return out
}
