package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// Usage returns what machines and tasks use, for a screen of so many cells, 0 for one
// without end.
func Usage(u *status.Usage, width int) string {
	var b strings.Builder
	if len(u.Machines) > 0 {
		t := Table{Columns: []Column{
			{Head: "MACHINE", Least: 12, Always: true},
			{Head: "TASKS", Always: true},
			{Head: "CPU", Always: true},
			{Head: "RAM", Always: true},
			{Head: "RAM LEFT", Always: true, Rank: 2},
			{Head: "DISK LEFT", Always: true, Rank: 1},
			{Head: "AGE", Always: true, Rank: 3},
		}}
		for i := range u.Machines {
			m := &u.Machines[i]
			t.Rows = append(t.Rows, cellsOf(
				m.Name, strconv.Itoa(m.Tasks), schema.CPU(m.Used.CPUMilli)+" of "+schema.CPU(m.Capacity.CPUMilli),
				schema.Bytes(m.Used.RAMBytes)+" of "+schema.Bytes(m.Used.RAMBytes+m.RAMAvailable),
				schema.Bytes(m.RAMAvailable), schema.Bytes(m.DiskAvailable), sampleAge(u.At, m.HeardAt),
			))
		}
		b.WriteString(t.Text(width, false) + "\n")
	}
	t := Table{Columns: []Column{
		{Head: "TASK", Least: 16, Always: true},
		{Head: "MACHINE", Least: 8, Always: true, Rank: 3},
		{Head: "CPU", Always: true},
		{Head: "RAM", Always: true},
		{Head: "DISK", Always: true, Rank: 1},
		{Head: "PROCESSES", Always: true, Rank: 6},
		{Head: "THROTTLED", Always: true, Rank: 4},
		{Head: "DELAY", Always: true, Rank: 5},
		{Head: "OOM", Always: true, Rank: 2},
		{Head: "AGE", Always: true, Rank: 7},
	}}
	for i := range u.Tasks {
		l := &u.Tasks[i]
		t.Rows = append(t.Rows, cellsOf(
			l.Name, l.Machine, ofLimit(schema.CPU(l.CPUMilli), l.Limit.CPUMilli, schema.CPU(l.Limit.CPUMilli)),
			ofLimit(schema.Bytes(l.RAMBytes), l.Limit.RAMBytes, schema.Bytes(l.Limit.RAMBytes)), ofLimit(diskOf(&l.Usage), l.Limit.DiskBytes, schema.Bytes(l.Limit.DiskBytes)),
			strconv.FormatInt(l.Processes, 10), strconv.FormatInt(l.ThrottledMilli, 10), strconv.FormatInt(l.DelayMilli, 10),
			strconv.FormatInt(l.OOMKills, 10), sampleAge(u.At, l.HeardAt),
		))
	}
	b.WriteString(t.Text(width, false))
	return b.String()
}

func cellsOf(texts ...string) []Cell {
	out := make([]Cell, len(texts))
	for i, text := range texts {
		out[i].Text = text
	}
	return out
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
		return schema.Bytes(u.DiskBytes) + "+"
	}
	return schema.Bytes(u.DiskBytes)
}

func sampleAge(now, at time.Time) string { return max(0, now.Sub(at)).Round(time.Second).String() }

// usageOf writes what tasks use that were asked for by name.
func (v *View) usageOf(b *strings.Builder, list []status.TaskUsageLine) {
	for i := range list {
		t := &list[i]
		v.para(b, "", "", fmt.Sprintf("%s uses %s of CPU, %s of memory, %s of disk, in %s; throttled %d ms, delayed %d ms of each second; %s",
			t.Name, ofLimit(schema.CPU(t.CPUMilli), t.Limit.CPUMilli, schema.CPU(t.Limit.CPUMilli)),
			ofLimit(schema.Bytes(t.RAMBytes), t.Limit.RAMBytes, schema.Bytes(t.Limit.RAMBytes)),
			ofLimit(diskOf(&t.Usage), t.Limit.DiskBytes, schema.Bytes(t.Limit.DiskBytes)), processes(t.Processes), t.ThrottledMilli, t.DelayMilli, schema.Count(int(t.OOMKills), "OOM kill")))
		for _, note := range []string{t.DiskNote, t.Note} {
			if note != "" {
				v.para(b, "  ", "", note)
			}
		}
	}
}

func processes(n int64) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
