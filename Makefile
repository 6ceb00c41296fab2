# Needs Go (see go.mod), git and make; `make race` also needs a C compiler.
export GOFLAGS := $(strip $(GOFLAGS) -trimpath -buildvcs=false)
export CGO_ENABLED := 0

VERSION      := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LINT_VERSION := v2.15.0
LINT         := .tools/golangci-lint-$(LINT_VERSION)
GOTEST       ?= go test
FUZZTIME     ?= 30s
FUZZ         ?= .
SEEDS        ?= 200
STEPS        ?= 5000
FROM         ?=
HUNTS        ?= 3
BUGS         ?= .
KILLS        ?= 20
ROUNDS       ?= 5
AGENTKILLS   ?= 100
CONTAINERKILLS ?= 30
STORM        ?= 200
MASTERKILLS  ?= 100
STOPPED      ?= 2m
PLANNED      ?= 50
MACHINES     ?= 1000
TASKS        ?= 10
RESULTS      ?=
PROFILES     ?=
LOADS        ?=
LATER        ?=

.PHONY: help build demo test race lint fuzz bench bench-cell sim tight mutants chaos chaos-cell chaos-agent e2e planned hogs hostile leaks services user vm vm-systemd vm-power generate generated check nightly clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## build bin/muster, bin/muster-agent and bin/muster-keeper (static)
	go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/muster ./cmd/muster-agent ./cmd/muster-keeper

demo: build ## show a whole cell on this machine doing its main job, about a minute
	bin/muster demo

# The longest first, so that none of them is left to run alone at the end.
LONGEST := ./nodeagent/loop ./cmd/internal/e2e ./nodeagent/runtime ./cmd/muster
# What make chaos does for longer, and make demo as users do; LATER=chaos leaves it to them.
CHAOS := ^Test(Chaos|Storm|MasterKilled|AgentStopped|RandomKills(Contained)?)$$
# OTHERS are tests, A|B for TestA and TestB, that other runs of CI have: see .ci/run.
OTHERS ?=
test: ## run the tests
	$(GOTEST) -timeout 20m $(if $(LATER)$(OTHERS),-skip '$(if $(filter chaos,$(LATER)),$(CHAOS)|^TestWholeDemo$$|)^Test($(OTHERS))$$') $(LONGEST) ./...

# The cores themselves have no goroutine and share nothing (cmd/internal/rules), and under
# the detector their properties took most of the time; who calls them is here.
RACED ?= ./reconciler/... ./nodeagent/...
RACE ?= $(shell go list $(RACED) | grep -vE '/muster/(nodeagent|reconciler(/(model|intent|quota|control(/draft|/facts|/snapshot)?|status))?)$$')
# Walks through each system call or step of a keeper or agent, and what rests on sizes and
# moments that the race detector changes, or on a test that is a static program: make test
# has them.
NORACE := ^Test(FullDisk|QuotaUsedUp|Hogs|CrashAtEveryStep|KillRealAgentAtEveryStep|KeeperKilledAtEveryEffect|Damaged(MachineFiles|EachFile)|(Keeper|Agent)Refused.*|(Container|Runsc)Escapes|HostileWatches|CommandsAreNotTraced|LargeData)$$
race: ## run the tests of what has goroutines under the race detector
	CGO_ENABLED=1 $(GOTEST) -race -skip '$(NORACE)' $(filter %/loop %/runtime %/git %/store,$(RACE)) $(RACE)

lint: $(LINT) ## golangci-lint, go vet, and the rules of the tree
	$(LINT) run ./...
	go vet ./...
	go test -count=1 ./cmd/internal/rules

$(LINT):
	GOBIN=$(CURDIR)/.tools go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv .tools/golangci-lint $@

# Go before 1.27 may fail a fuzz test at its deadline with nothing found
# (go.dev/issue/75804); a test that ends so is run once more, and what a run found
# is in its last one.
fuzz: ## run each fuzz test whose name matches FUZZ for FUZZTIME
	@log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && \
	git grep -oE '^func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | while IFS=: read -r file name; do \
		name=$${name#func }; \
		echo "$$name" | grep -qE '$(FUZZ)' || continue; \
		echo "$$name in $$(dirname $$file)"; \
		try() { go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file) >"$$log" 2>&1; }; \
		failed=; try || failed=1; \
		if [ "$$failed" ] && grep -A1 -e '^--- FAIL: ' "$$log" | grep -qx ' *context deadline exceeded'; then \
			echo 'no result at the deadline: once more'; \
			failed=; try || failed=1; \
		fi; \
		cat "$$log"; \
		[ -z "$$failed" ] || exit 1; \
	done

bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem $$(git grep -lE '^func Benchmark' -- '*_test.go' | xargs -r -n1 dirname | sort -u | sed 's|^|./|')

# The paths are made absolute, since a test runs in the directory of its package.
bench-cell: ## measure a master with MACHINES hollow machines and TASKS tasks for each, against the budgets for that many; RESULTS is a file for JSON, PROFILES a directory; LOADS=join,commit,... applies these only, without budgets
	go test -count=1 -v -timeout 60m -run '^TestCell$$' ./cmd/internal/bench -cell.machines $(MACHINES) -cell.tasks $(TASKS) -cell.json '$(abspath $(RESULTS))' -cell.profiles '$(abspath $(PROFILES))' -cell.loads '$(LOADS)'

FRESH := $(shell date +%s)000
SIM = go test -count=1 -timeout 80m ./cmd/internal/sim -run '^Test(Random|Rough)$$' -sim.steps $(STEPS)
sim: ## play SEEDS histories of STEPS steps in the simulated cell: from seed FROM on, or half of them fresh ones
ifneq ($(FROM),)
	$(SIM) -sim.first $(FROM) -sim.seeds $(SEEDS)
else
	$(SIM) -sim.first 1 -sim.seeds $$(( ($(SEEDS) + 1) / 2 ))
	@echo "fresh seeds; again with: make sim FROM=$(FRESH) SEEDS=$$(( $(SEEDS) / 2 )) STEPS=$(STEPS)"
	$(SIM) -sim.first $(FRESH) -sim.seeds $$(( $(SEEDS) / 2 ))
endif

tight: ## simulate SEEDS/5 histories of STEPS/50 actions in which room is scarce, from FROM on
	go test -count=1 -timeout 80m ./cmd/internal/sim -run '^TestTight$$' -sim.steps $(STEPS) -sim.first $(or $(FROM),1) -sim.seeds $(SEEDS)

mutants: ## plant each of the BUGS into the source, and find it with seeds of STEPS steps, HUNTS times
	go test -count=1 -v -timeout 80m ./cmd/internal/sim -run '^TestSource$$' -sim.steps $(STEPS) -sim.hunts $(HUNTS) -sim.only '$(BUGS)'

chaos: ## kill a cell's parts at KILLS, its master at MASTERKILLS, agent and keepers at AGENTKILLS moments, of containers at CONTAINERKILLS; push STORM commits
	@$(MAKE) --no-print-directory -j2 --output-sync chaos-cell chaos-agent
chaos-cell: # its tests wait most of the time, so all run at once
	$(GOTEST) -count=1 -v -timeout 30m -parallel 4 -run '$(CHAOS)' ./cmd/internal/e2e -e2e.kills $(KILLS) -e2e.storm $(STORM) -e2e.masterkills $(MASTERKILLS) -e2e.stopped $(STOPPED)
chaos-agent:
	$(GOTEST) -count=1 -v -run '$(CHAOS)' ./cmd/muster-agent -agent.kills $(AGENTKILLS) -agent.containerkills $(CONTAINERKILLS)

planned: ## compare what muster plan says of PLANNED random commits with what a cell of three agents then does
	go test -count=1 -v -timeout 60m -run '^TestRandomCommitsArePlanned$$' ./cmd/internal/e2e -e2e.planned $(PLANNED)

# Of the first four make test plays a third.
FAULTS := ^Test(Faults|Failpoints|FailpointsOfCluster|RollingUpgrade|ClusterLost|Restore|TwoMasters|SlowStore|SlowDisk|FullDisk|AgentStopped|ImageUpdate)$$
e2e: ## do real faults to cells of processes: all scenarios, failpoints, upgrades and drills of docs/operations.md, as root
	go test -count=1 -v -timeout 60m -parallel 2 -run '$(FAULTS)' ./cmd/internal/e2e -e2e.whole -e2e.faultkills 5 -e2e.passages 14 -e2e.updated 20
	go test -count=1 -v -run '^TestReal$$' ./nodeagent/image -image.files 10000

user: ## run the node agent's tests as an ordinary user
	.ci/user || [ $$? = 77 ]

vm: ## run the node agent's tests as root in a virtual machine with cgroup v2 only
	.ci/vm -test.v -test.short || [ $$? = 77 ]

vm-systemd: ## run the systemd units in a virtual machine: start, upgrade, watchdog, stop, reboot
	.ci/vm-systemd || [ $$? = 77 ]

CUTS ?= 8
SEED ?= 1
vm-power: ## cut the power of CUTS virtual machines that pull images, by SEED
	.ci/vm-power -image.cuts $(CUTS) -image.seed $(SEED) || [ $$? = 77 ]

hogs: ## measure requests beside hogs of CPU, memory and processes, disk, and logs, and syncs beside writers, in ROUNDS pairs
	go test -count=1 -v -run '^TestHogs$$' ./nodeagent/loop -hogs.rounds $(ROUNDS)

hostile: ## compile hostile packages of full size beside another tenant's line, and measure how long that waits, and memory
	go test -count=1 -v -timeout 2h -run '^TestBeside$$' ./schema/compile -compile.beside

leaks: ## make and remove 1,000 networks of tasks, after which nothing may be left, as root
	go test -count=1 -v -run '^TestLeavesNothing$$' ./nodeagent/network -rounds 1000

UPDATES = 100
REQUESTS ?= 0
CLIENTS ?= 1
SERVICEKILLS ?= 20
MACHINES = 50
SERVICE = go test -count=1 -v -timeout 4h -run '^TestService$$' ./cmd/internal/e2e -services.clients $(CLIENTS) -services.every 2ms
services: ## count failed requests, REQUESTS or more by CLIENTS on each of two machines, in UPDATES rolling updates of 10 tasks; in drains, preemptions, moves, other changes, and while agents and masters are killed SERVICEKILLS times, in ROUNDS rounds; and measure how long MACHINES take to send to a new one
	$(SERVICE) -services.only '^rolling updates$$' -services.updates $(UPDATES) -services.tasks 10 -services.requests $(REQUESTS)
	$(SERVICE) -services.whole -services.rounds $(ROUNDS) -services.kills $(SERVICEKILLS) -services.seed $$(date +%s)
	go test -count=1 -v -run '^TestServiceDelay$$' ./cmd/internal/e2e -services.versions 8 -services.machines $(MACHINES) -services.every 2ms

generate: ## write what is generated: protobuf code, references, golden lists
	go generate ./...
	go test -count=1 -run '^TestLinked$$' ./cmd/internal/rules -update

STATE = { git diff HEAD; git ls-files -o --exclude-standard | xargs -r sha256sum; } | sha256sum
generated: # fails when generate changes something
	@before=$$($(STATE)); $(MAKE) --no-print-directory generate && after=$$($(STATE)); \
	[ "$$before" = "$$after" ] || { git status --short; echo 'make generate changed the tree: commit what it wrote' >&2; exit 1; }

# TestRandom has a short sim.
check: ## everything that CI checks, one after the other
	@for target in lint generated 'test LATER=chaos' user race 'fuzz FUZZTIME=3s' 'chaos STORM=60 MASTERKILLS=40 STOPPED=30s' demo; do \
		start=$$(date +%s); echo "== make $$target"; $(MAKE) --no-print-directory $$target || exit 1; \
		echo "== make $$target: $$(($$(date +%s) - start)) s"; \
	done

nightly: ## everything that takes long, in full: more than CI runs, some hours
	@for target in check 'race RACE=./reconciler' 'fuzz FUZZTIME=60s' 'sim SEEDS=400' 'tight SEEDS=100' 'mutants HUNTS=3' chaos e2e planned hogs leaks services vm vm-systemd vm-power bench; do \
		start=$$(date +%s); echo "== make $$target"; $(MAKE) --no-print-directory $$target || exit 1; \
		echo "== make $$target: $$(($$(date +%s) - start)) s"; \
	done

clean: ## remove what was built and installed here
	rm -rf bin .tools
