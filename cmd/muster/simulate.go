package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/placement/pack"
)

func newSimulate(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:     "simulate",
		Short:   "simulate, with the same code that a cell runs",
		Example: "  muster simulate pack --nodes nodes.csv --tasks tasks.csv",
	}
	c.AddCommand(newSimulateFit(std), newSimulateDrain(std), newSimulateLose(std), newSimulateGrow(std), newSimulateCompact(std), newSimulatePack(std), newSimulateExperiment(std), newSimulateReplay(std), newSimulateTrace(std))
	return c
}

func newSimulatePack(std stdio) *cobra.Command {
	var nodes, tasks string
	var r pack.Request
	var out *outputFlag
	c := &cobra.Command{
		Use:   "pack --nodes FILE --tasks FILE",
		Short: "measure how well placement packs a trace of machines and tasks",
		Long: `Measure how well placement packs a trace: CSV files of machines and tasks in the
columns of Alibaba's openb. docs/traces.md says what the columns mean, so that
you can bring a trace of your own.

compaction: how many machines the work needs (Borg's measure, 90th percentile).
gpu-at-130: how much of the GPUs is allocated when 130% of them are asked for.
churn: how long large tasks wait in a cell in which tasks come and go, which has been
running for long, at a load of --load.

With --schedulers, several schedulers share the tasks. Each plans on a copy of the
cell, and its decisions are verified when they are committed: those that conflict
with another scheduler's are counted and made again.`,
		Example: "  muster simulate pack --nodes nodes.csv --tasks tasks.csv --policy best-fit --measure compaction --seeds 11 -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if nodes == "" || tasks == "" {
				return invalid("usage: "+cmd.UseLine(), "--nodes and --tasks: want a file each")
			}
			n, err := os.Open(nodes)
			if err != nil {
				return invalid("usage: "+cmd.UseLine(), "--nodes: %w", err)
			}
			defer n.Close()
			t, err := os.Open(tasks)
			if err != nil {
				return invalid("usage: "+cmd.UseLine(), "--tasks: %w", err)
			}
			defer t.Close()
			r.Nodes, r.Tasks, r.NodesFile, r.TasksFile = n, t, nodes, tasks
			res, err := computed(cmd.Context(), func() (pack.Result, error) { return pack.Simulate(r) })
			switch {
			case err != nil && cmd.Context().Err() != nil:
				return err
			case err != nil:
				return invalid("docs/traces.md has the columns, muster simulate pack --help the values of the flags", "%w", err)
			case out.value == "json":
				return printJSON(std.out, res)
			}
			return res.WriteText(std.out)
		},
	}
	c.Flags().StringVar(&nodes, "nodes", "", "CSV file of machines")
	c.Flags().StringVar(&tasks, "tasks", "", "CSV file of tasks")
	c.Flags().StringVar(&r.Policy, "policy", "hybrid", "hybrid, best-fit, worst-fit, dot-product, cosine, random")
	c.Flags().StringVar(&r.Measure, "measure", "compaction", "compaction, gpu-at-130, churn")
	c.Flags().StringVar(&r.GPUs, "gpus", "devices", "how GPUs are counted: devices, scalar, ignored")
	c.Flags().IntVar(&r.Seeds, "seeds", 0, "orders that are tried; 0 for the measure's own")
	c.Flags().Float64Var(&r.Load, "load", 0, "of churn: what tasks ask for on average, as a share of the cell; 0 for 0.9")
	c.Flags().IntVar(&r.Schedulers, "schedulers", 1, "schedulers that share the tasks, 1 to 64")
	c.Flags().BoolVar(&r.AllPhases, "all-phases", false, "compaction takes tasks whose pod_phase is Failed too")
	c.Flags().BoolVar(&r.Relaxed, "relaxed", false, "score a sample of the machines for each task, as a large cell does")
	out = addOutput(c, "text", "json")
	return c
}
