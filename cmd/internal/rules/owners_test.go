package rules

import (
	"fmt"
	"strings"
)

// owner says who may import a dependency. Every import from outside the
// standard library needs a row.
type owner struct {
	prefix string
	may    []string // packages
	tests  []string // packages whose tests may as well
	reason string
}

// anywhere is for what is small, has no state and is everyone's.
var anywhere = []string{"..."}

var owners = []owner{
	{
		"cuelang.org/go",
		[]string{"schema/compile", "schema/compile/cases", "schema/compile/cut", "schema/compile/edit", "schema/compile/lax", "schema/compile/policytext", "schema/compile/stage", "schema/compile/syntax", "schema/compile/terms", "schema/compile/trace", "schema/compile/walk"},
		[]string{"schema/..."},
		"CUE is evaluated in one place, in a child process; all that follows is plain data",
	},
	{
		"github.com/go-git/",
		[]string{"reconciler/git"},
		nil,
		"go-git is not safe for concurrent use, so one package owns it; " +
			"and what a commit is to muster (a schema.Tree) must not depend on it",
	},
	{
		"go.etcd.io/",
		[]string{"reconciler/store", "reconciler/store/storetest"},
		nil,
		"every write is fenced; a second way to the store would be a way around the fence",
	},
	{
		"go.uber.org/zap",
		[]string{"reconciler/store", "reconciler/store/storetest"},
		nil,
		"etcd logs with it; all else logs with log/slog",
	},
	{
		"google.golang.org/grpc",
		[]string{"schema/linkpb", "reconciler/link", "reconciler/relay", "reconciler/replica", "nodeagent/link"},
		nil,
		"the link is the only RPC, between masters as with agents",
	},
	{
		"google.golang.org/protobuf",
		[]string{"schema/linkpb/...", "reconciler/link", "reconciler/relay", "nodeagent/link"},
		nil,
		"protobuf is the link's form of the schema and no one else's",
	},
	{
		"github.com/bufbuild/protocompile",
		[]string{"schema/linkpb/..."},
		nil,
		"only the generator of schema/linkpb reads .proto files",
	},
	{
		"github.com/cilium/ebpf",
		[]string{"nodeagent/host"},
		nil,
		"one package knows how the kernel holds a task",
	},
	{
		"github.com/containerd/cgroups/v3",
		[]string{"nodeagent/host"},
		nil,
		"one package knows how the kernel holds a task",
	},
	{
		"github.com/opencontainers/runtime-spec",
		[]string{"nodeagent/host", "nodeagent/runtime/..."},
		nil,
		"the cgroups module takes its types, and a container is described by them; the keeper takes it as bytes",
	},
	{
		"tags.cncf.io/container-device-interface",
		[]string{"nodeagent/host"},
		nil,
		"what a task finds of its devices is known in one place",
	},
	{
		"github.com/elastic/go-seccomp-bpf",
		[]string{"nodeagent/runtime/..."},
		nil,
		"the filter of tasks is put together in one place; the keeper takes it as bytes",
	},
	{
		"github.com/miekg/dns",
		[]string{"nodeagent/network/dns"},
		[]string{"cmd/internal/e2e", "cmd/muster-agent"},
		"only the DNS server speaks DNS",
	},
	{
		"github.com/containernetworking/cni",
		[]string{"nodeagent/network/cni"},
		nil,
		"only what calls plugins of CNI knows how they are spoken to",
	},
	{
		"github.com/google/nftables",
		[]string{"nodeagent/network", "nodeagent/network/cni", "nodeagent/network/netfilter", "nodeagent/network/policy/kernel", "nodeagent/network/services/kernel"},
		nil,
		"a table of the kernel has one writer, and each of them has its own",
	},
	{
		"github.com/mdlayher/netlink",
		[]string{"nodeagent/network/netfilter", "nodeagent/network/policy/kernel", "nodeagent/network/services/kernel"},
		nil,
		"google/nftables gives its sockets in this form, for their sizes",
	},
	{
		"github.com/vishvananda/netlink",
		[]string{"nodeagent/network/..."},
		nil,
		"only what programs the network speaks with the kernel about it",
	},
	{
		"github.com/vishvananda/netns",
		[]string{"nodeagent/network", "nodeagent/network/cni", "nodeagent/network/policy/kernel"},
		nil,
		"vishvananda/netlink takes network namespaces in this form",
	},
	{
		"golang.org/x/net/ipv4",
		[]string{"nodeagent/network/dns"},
		nil,
		"several packets are read with one system call where there are many",
	},
	{
		"golang.org/x/net/bpf",
		[]string{"nodeagent/runtime/..."},
		nil,
		"the seccomp module gives its programs in this form",
	},
	{
		"github.com/fsnotify/fsnotify",
		[]string{"reconciler/fswatch"},
		nil,
		"only a local repository or work tree is watched",
	},
	{
		"github.com/spf13/",
		[]string{"cmd/..."},
		nil,
		"flags are the commands' business; packages take a Config",
	},
	{
		"github.com/prometheus/",
		[]string{"reconciler/...", "nodeagent/...", "cmd/..."},
		nil,
		"adapters and loops count; the cores return data",
	},
	{
		"github.com/klauspost/compress/gzhttp",
		[]string{"reconciler/web"},
		nil,
		"only the API has answers to compress",
	},
	{
		"github.com/klauspost/compress/",
		[]string{"nodeagent/image", "reconciler/checkpoint"},
		nil,
		"layers of images come compressed, and checkpoints are",
	},
	{
		"github.com/opencontainers/go-digest",
		[]string{"nodeagent/image", "nodeagent/image/imagetest"},
		nil,
		"the types of an image's documents",
	},
	{
		"github.com/opencontainers/image-spec",
		[]string{"nodeagent/image", "nodeagent/image/imagetest"},
		nil,
		"the types of an image's documents",
	},
	{
		"filippo.io/age",
		[]string{"schema/sealed"},
		nil,
		"how a secret is sealed is decided in one place, which master, agent and command line share",
	},
	{
		"github.com/go-analyze/charts",
		[]string{"cmd/internal/chart"},
		nil,
		"what a plot looks like is decided in one place, and only the command line draws",
	},
	{
		"go.yaml.in/yaml/v3",
		[]string{"schema/sops", "schema/compile/cut"},
		nil,
		"config repositories are CUE, which reads the YAML that they embed; files of SOPS are YAML, and rows are cut out of its text",
	},
	{
		"github.com/go-json-experiment/json",
		[]string{"schema/strictjson"},
		nil,
		"all else is read and written by the standard library, which will have what is used of it",
	},
	{
		"github.com/google/go-cmp",
		nil,
		anywhere,
		"it panics on unexported fields and says itself that it is for tests only",
	},
	{
		"github.com/santhosh-tekuri/jsonschema",
		nil,
		[]string{"schema/compile"},
		"a test asks a validator that is not ours what the exported JSON Schema accepts",
	},
	{
		"pgregory.net/rapid",
		nil,
		anywhere,
		"a test library",
	},
	{
		"github.com/cockroachdb/datadriven",
		nil,
		anywhere,
		"a test library",
	},
	{
		"github.com/rogpeppe/go-internal/diff",
		[]string{"cmd/muster"},
		nil,
		"a difference of texts is for people",
	},
	{
		"github.com/rogpeppe/go-internal",
		nil,
		[]string{"cmd/...", "schema/...", "examples/..."},
		"testscript and txtar are for the tests of commands and of config repositories",
	},
	{
		"golang.org/x/tools/txtar",
		nil,
		anywhere,
		"a form of test data",
	},
	{
		"golang.org/x/tools/go/packages",
		nil,
		[]string{"cmd/internal/rules"},
		"the rules of the tree measure how the files of a package need each other",
	},
	{
		"golang.org/x/crypto/ssh",
		[]string{"reconciler/git"},
		nil,
		"only a config repository is asked over ssh",
	},
	{
		"golang.org/x/sync",
		[]string{"schema/compile", "reconciler/...", "nodeagent/...", "cmd/..."},
		anywhere,
		"goroutines live in loops and adapters",
	},
	{
		"golang.org/x/term",
		[]string{"cmd/muster"},
		nil,
		"only the command line has a terminal",
	},
	{
		"golang.org/x/sys",
		[]string{"schema/compile", "reconciler/...", "nodeagent/...", "cmd/..."},
		anywhere,
		"system calls live in adapters",
	},
}

func checkOwners(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		for _, s := range f.ast.Imports {
			p := imported(s)
			if _, mine := ours(p); mine || standard(p) {
				continue
			}
			if text := refuse(f, p); text != "" {
				out = append(out, t.fault(s, "%s imports %s: %s", f.dir, p, text))
			}
		}
	}
	return out
}

// refuse returns why f may not import p, or "".
func refuse(f *file, p string) string {
	if isCore(f.dir) && !f.test {
		return "a core imports nothing but the standard library, placement and schema"
	}
	for _, o := range owners {
		if !strings.HasPrefix(p, o.prefix) {
			continue
		}
		if matches(f.dir, o.may) || f.test && matches(f.dir, o.tests) {
			return ""
		}
		return fmt.Sprintf("%s (only %s)", o.reason, strings.Join(append(o.may[:len(o.may):len(o.may)], "tests of "+strings.Join(o.tests, " ")), " "))
	}
	return "the table of owners has no row for this dependency: add one, with its reason, and a line in " + dependencyPage
}
