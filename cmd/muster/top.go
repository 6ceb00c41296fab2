package main

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/status"
)

// topOrders are what tasks can be sorted by: most first, but for names.
var topOrders = map[string]func(a, b *status.TaskUsageLine) int{
	"cpu":       func(a, b *status.TaskUsageLine) int { return cmp.Compare(b.CPUMilli, a.CPUMilli) },
	"ram":       func(a, b *status.TaskUsageLine) int { return cmp.Compare(b.RAMBytes, a.RAMBytes) },
	"disk":      func(a, b *status.TaskUsageLine) int { return cmp.Compare(b.DiskBytes, a.DiskBytes) },
	"throttled": func(a, b *status.TaskUsageLine) int { return cmp.Compare(b.ThrottledMilli, a.ThrottledMilli) },
	"delay":     func(a, b *status.TaskUsageLine) int { return cmp.Compare(b.DelayMilli, a.DelayMilli) },
	"name":      func(a, b *status.TaskUsageLine) int { return cmp.Compare(a.Name, b.Name) },
}

func newTop(std stdio) *cobra.Command {
	var m lookFlag
	var out *outputFlag
	var l labelFlag
	order := &outputFlag{value: "cpu", formats: []string{"cpu", "ram", "disk", "throttled", "delay", "name"}}
	limit, wide := 0, false
	c := &cobra.Command{
		Use:   "top [USER/JOB | USER/JOB/INDEX | MACHINE]",
		Short: "show the resource usage of machines and tasks",
		Long: `Show the resource usage of machines and tasks: of the cell, a job, a task, the tasks on
a machine, or the jobs that --selector matches.

Agents take samples every few seconds; AGE is the age of the sample. CPU is in cores:
500m is half a core. RAM is the working set: memory without reclaimable page cache. DISK
is as of the last scan of the task's directories; "?" is not measured yet, and "+" is a
partial scan. THROTTLED is the time for which the CPU limit throttled the task, DELAY
the time for which its threads were runnable and waited for a CPU, both in milliseconds
per second. OOM counts processes that the kernel killed for lack of memory. The numbers
of a machine include the system. Columns that do not fit the terminal are left out;
--wide prints all.`,
		Example: `  muster top
  muster top search/web --sort ram
  muster top -l tier=front -o json | jq '.tasks[] | {name, cpuMilli}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return invalid("0 prints all of them", "--limit %d: want at least 0", limit)
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			u, err := cl.Usage(cmd.Context(), l.group(args))
			if err != nil {
				return err
			}
			slices.SortStableFunc(u.Tasks, func(a, b status.TaskUsageLine) int { return topOrders[order.value](&a, &b) })
			if limit > 0 {
				u.Tasks = u.Tasks[:min(limit, len(u.Tasks))]
			}
			if out.value == "json" {
				return printJSON(std.out, u)
			}
			_, err = io.WriteString(std.out, screen.Usage(u, columns(std.out, wide)))
			return err
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().BoolVar(&wide, "wide", false, "all columns, in lines of any length")
	c.Flags().Var(order, "sort", "what tasks are sorted by: "+strings.Join(order.formats, ", "))
	c.Flags().IntVar(&limit, "limit", 0, "how many tasks to print; 0 for all")
	return c
}
