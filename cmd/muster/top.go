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
	var m masterFlag
	var out *outputFlag
	var l labelFlag
	order := &outputFlag{value: "cpu", formats: []string{"cpu", "ram", "disk", "throttled", "delay", "name"}}
	limit, wide := 0, false
	c := &cobra.Command{
		Use:   "top [USER/JOB | USER/JOB/INDEX | MACHINE]",
		Short: "show what machines and tasks use, beside their limits",
		Long: `Show what the cell's machines and tasks use, or a part of them: a job, a task,
what runs on a machine, or the jobs that --selector picks.

Agents measure every few seconds; AGE says how old a sample is. RAM is the
working set: without the page cache that the kernel would take back first. DISK
is as of the last walk through the task's directories; "?" is not measured yet,
and "+" only a part. THROTTLED is the time in which the CPU limit held a task
back, DELAY the time in which its threads were ready and had no processor, both
in milliseconds of each second. OOM counts processes that the kernel killed for
want of memory. The numbers of a machine are of all that runs on it, not of the
tasks alone. CPU is in cores, 500m is half of one. Columns that the screen has no room
for are left out; --wide tells all.`,
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
