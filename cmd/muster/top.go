package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// topOrders are what tasks can be sorted by: most first, but for names.
var topOrders = map[string]func(a, b *reconciler.TaskUsageLine) int{
	"cpu":       func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(b.CPUMilli, a.CPUMilli) },
	"ram":       func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(b.RAMBytes, a.RAMBytes) },
	"disk":      func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(b.DiskBytes, a.DiskBytes) },
	"throttled": func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(b.ThrottledMilli, a.ThrottledMilli) },
	"delay":     func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(b.DelayMilli, a.DelayMilli) },
	"name":      func(a, b *reconciler.TaskUsageLine) int { return cmp.Compare(a.Name, b.Name) },
}

func newTop(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	var l labelFlag
	order := &outputFlag{value: "cpu", formats: []string{"cpu", "ram", "disk", "throttled", "delay", "name"}}
	limit := 0
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
tasks alone.`,
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
			slices.SortStableFunc(u.Tasks, func(a, b reconciler.TaskUsageLine) int { return topOrders[order.value](&a, &b) })
			if limit > 0 {
				u.Tasks = u.Tasks[:min(limit, len(u.Tasks))]
			}
			if out.value == "json" {
				return printJSON(std.out, u)
			}
			return printTop(std.out, u)
		},
	}
	m.add(c)
	l.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().Var(order, "sort", "what tasks are sorted by: "+strings.Join(order.formats, ", "))
	c.Flags().IntVar(&limit, "limit", 0, "how many tasks to print; 0 for all")
	return c
}

func printTop(w io.Writer, u *reconciler.Usage) error {
	if len(u.Machines) > 0 {
		rows := [][]string{{"MACHINE", "TASKS", "CPU (milli)", "RAM", "RAM LEFT", "DISK LEFT", "AGE"}}
		for i := range u.Machines {
			m := &u.Machines[i]
			rows = append(rows, []string{
				m.Name, strconv.Itoa(m.Tasks), fmt.Sprintf("%d of %d", m.Used.CPUMilli, m.Capacity.CPUMilli),
				bytesOf(m.Used.RAMBytes) + " of " + bytesOf(m.Used.RAMBytes+m.RAMAvailable),
				bytesOf(m.RAMAvailable), bytesOf(m.DiskAvailable), age(u.At, m.HeardAt),
			})
		}
		if err := table(w, rows); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return table(w, topRows(u))
}

func topRows(u *reconciler.Usage) [][]string {
	rows := [][]string{{"TASK", "MACHINE", "CPU (milli)", "RAM", "DISK", "PROCESSES", "THROTTLED", "DELAY", "OOM", "AGE"}}
	for i := range u.Tasks {
		t := &u.Tasks[i]
		rows = append(rows, []string{
			t.Name, t.Machine, ofLimit(strconv.FormatInt(t.CPUMilli, 10), t.Limit.CPUMilli, strconv.FormatInt(t.Limit.CPUMilli, 10)),
			ofLimit(bytesOf(t.RAMBytes), t.Limit.RAMBytes, bytesOf(t.Limit.RAMBytes)), ofLimit(diskOf(&t.Usage), t.Limit.DiskBytes, bytesOf(t.Limit.DiskBytes)),
			strconv.FormatInt(t.Processes, 10), strconv.FormatInt(t.ThrottledMilli, 10), strconv.FormatInt(t.DelayMilli, 10),
			strconv.FormatInt(t.OOMKills, 10), age(u.At, t.HeardAt),
		})
	}
	return rows
}

// ofLimit writes "used of limit"; without a limit only what is used.
func ofLimit(used string, limit int64, text string) string {
	if limit <= 0 {
		return used
	}
	return used + " of " + text
}

func diskOf(u *schema.Usage) string {
	switch {
	case u.DiskAt.IsZero():
		return "?"
	case u.DiskNote != "":
		return bytesOf(u.DiskBytes) + "+"
	}
	return bytesOf(u.DiskBytes)
}

func age(now, at time.Time) string { return max(0, now.Sub(at)).Round(time.Second).String() }

// printUsage writes what tasks use that were asked for by name, each in a line.
func printUsage(w io.Writer, u *reconciler.Usage) {
	for i := range u.Tasks {
		t := &u.Tasks[i]
		fmt.Fprintf(w, "%s uses %s milli of CPU, %s of memory, %s of disk, in %d processes; throttled %d ms, delayed %d ms of each second; %d OOM kills\n",
			t.Name, ofLimit(strconv.FormatInt(t.CPUMilli, 10), t.Limit.CPUMilli, strconv.FormatInt(t.Limit.CPUMilli, 10)),
			ofLimit(bytesOf(t.RAMBytes), t.Limit.RAMBytes, bytesOf(t.Limit.RAMBytes)),
			ofLimit(diskOf(&t.Usage), t.Limit.DiskBytes, bytesOf(t.Limit.DiskBytes)), t.Processes, t.ThrottledMilli, t.DelayMilli, t.OOMKills)
		for _, note := range []string{t.DiskNote, t.Note} {
			if note != "" {
				fmt.Fprintf(w, "  %s\n", note)
			}
		}
	}
}
