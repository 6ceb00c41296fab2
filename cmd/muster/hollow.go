package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/nodeagent/hollow"
	"github.com/musterhq/muster/schema"
)

const hollowHelp = `Run hollow machines: agents that use the real protocol with the master, and simulate
their tasks. Use them to try a large cell on one machine, or to benchmark a master.

Simulated tasks start, end and use resources as the flags say. Times that are called
mean are exponentially distributed. The sizes, racks (label rack) and zones (label zone)
of the machines depend on --seed alone.

The master is on this machine: --master names the socket of its agent link, for muster
master link/agent.sock in its data directory.

The first line on stdout is printed when all machines have joined. An interrupt ends
them all, as if each machine were lost, and prints a summary. Machines that are
started again with the same seed are the same machines after a reboot.`

// hollowFlags are what can be said of hollow machines.
type hollowFlags struct {
	cell, master, prefix, logLevel string
	count                          int
	seed                           uint64
	pattern                        hollow.Pattern
}

func newHollow(std stdio) *cobra.Command {
	f := hollowFlags{pattern: hollow.DefaultPattern}
	var out *outputFlag
	c := &cobra.Command{
		Use:   "hollow --count N --master ADDRESS --cell CELL",
		Short: "run hollow (simulated) machines, to try a large cell or to benchmark a master",
		Long:  hollowHelp,
		Example: `  muster master --repo /srv/fleet.git --data-dir /tmp/large &
  muster hollow --count 1000 --cell local --master unix:/tmp/large/link/agent.sock
  muster hollow --count 1000 --cell local --master unix:/tmp/large/link/agent.sock --crash-every 1h --silent-every 24h`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(std)
			if err != nil {
				return err
			}
			fleet := hollow.New(cfg)
			joined := make(chan struct{})
			go func() {
				defer close(joined)
				if allJoined(cmd.Context(), fleet) && out.value == "text" {
					screen.Printf(std.out, "muster: %d hollow machines have joined cell %s\n", cfg.Count, cfg.Cell)
				}
			}()
			err = fleet.Run(cmd.Context())
			<-joined
			if err != nil {
				return err
			}
			return printFleet(std, out, fleet.Stats())
		},
	}
	out = addOutput(c, "text", "json")
	f.add(c)
	return c
}

func (f *hollowFlags) add(c *cobra.Command) {
	s, p := c.Flags(), &f.pattern
	s.IntVar(&f.count, "count", 0, "number of machines")
	s.StringVar(&f.master, "master", "", "where the master listens for agents: unix:PATH[,unix:PATH…], of all masters of the cell; the machine name decides which one it connects to first")
	s.StringVar(&f.cell, "cell", "", "name of the cell")
	s.StringVar(&f.prefix, "name-prefix", hollow.DefaultPrefix, "prefix of the machines' names")
	s.Uint64Var(&f.seed, "seed", 1, "seed of the machines' sizes and of the simulated failures")
	s.DurationVar(&p.Start, "start-time", p.Start, "how long a task takes to start, 0.5 to 1.5 times that")
	s.DurationVar(&p.Batch, "batch-time", p.Batch, "how long a batch task runs, 0.5 to 1.5 times that")
	s.DurationVar(&p.Stop, "stop-time", p.Stop, "how long a task takes to end after SIGTERM, 0.5 to 1.5 times that")
	s.DurationVar(&p.CrashEvery, "crash-every", 0, "mean time until a task crashes; 0 for never")
	s.DurationVar(&p.AgentEvery, "agent-restart-every", 0, "mean time until the agent of a machine is restarted; 0 for never")
	s.DurationVar(&p.RebootEvery, "reboot-every", 0, "mean time until a machine is rebooted; 0 for never")
	s.DurationVar(&p.SilentEvery, "silent-every", 0, "mean time until a machine is cut off from the master; 0 for never")
	s.DurationVar(&p.SilentFor, "silent-for", hollow.DefaultSilentFor, "how long it is cut off")
	s.StringVar(&f.logLevel, "log-level", "error", "minimum level of what is logged to stderr: debug, info, warn, error")
}

// config errs for flags that cannot be.
func (f *hollowFlags) config(std stdio) (hollow.Config, error) {
	cfg := hollow.Config{Cell: f.cell, Count: f.count, Prefix: f.prefix, Seed: f.seed, Pattern: f.pattern, Version: version}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return cfg, invalid("such as --log-level info", "--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	cfg.Log = slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level}))
	if err := checkCount("--count", f.count); err != nil {
		return cfg, err
	}
	if f.cell == "" || f.master == "" {
		return cfg, invalid("such as --cell local --master unix:/var/lib/muster/link/agent.sock", "muster hollow needs --cell and --master")
	}
	for _, name := range []struct{ flag, value string }{{"cell", f.cell}, {"name-prefix", f.prefix}} {
		if err := schema.CheckName(name.value); err != nil && name.value != "" {
			return cfg, invalid("such as --"+name.flag+" local", "--%s: %w", name.flag, err)
		}
	}
	for master := range strings.SplitSeq(f.master, ",") {
		path, ok := strings.CutPrefix(master, "unix:")
		if !ok || path == "" {
			return cfg, invalid("such as --master unix:/var/lib/muster/link/agent.sock", "--master %q: hollow machines reach a master by a unix socket only", master)
		}
		cfg.Masters = append(cfg.Masters, path)
	}
	p := &f.pattern
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"start-time", p.Start},
		{"batch-time", p.Batch},
		{"stop-time", p.Stop},
		{"crash-every", p.CrashEvery},
		{"agent-restart-every", p.AgentEvery},
		{"reboot-every", p.RebootEvery},
		{"silent-every", p.SilentEvery},
		{"silent-for", p.SilentFor},
	} {
		if d.value < 0 {
			return cfg, invalid("such as --"+d.flag+" 1h", "--%s %s: want 0 or more", d.flag, d.value)
		}
	}
	return cfg, nil
}

// checkCount errs for a number of hollow machines that cannot be.
func checkCount(flag string, n int) error {
	if n < 1 || n > hollow.MaxMachines {
		return invalid("such as "+flag+" 1000", "%s %d: want 1 to %d", flag, n, hollow.MaxMachines)
	}
	return nil
}

// joinedEvery is how often it is looked whether all machines have joined.
const joinedEvery = 20 * time.Millisecond

// allJoined waits until all machines have joined, and returns false if ctx ends before.
func allJoined(ctx context.Context, f *hollow.Fleet) bool {
	tick := time.NewTicker(joinedEvery)
	defer tick.Stop()
	for {
		if s := f.Stats(); s.Linked == s.Machines {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func printFleet(std stdio, out *outputFlag, s hollow.Stats) error {
	if out.value == "json" {
		return printJSON(std.out, s)
	}
	rows := [][]string{{"MACHINES", "RUNNING", "STARTED", "FINISHED", "CRASHED", "STOPPED", "REBOOTED", "SILENCED"}, {}}
	for _, n := range []int64{int64(s.Machines), int64(s.Running), s.Started, s.Finished, s.Crashed, s.Stopped, s.Rebooted, s.Silenced} {
		rows[1] = append(rows[1], fmt.Sprint(n))
	}
	return table(std.out, rows)
}
