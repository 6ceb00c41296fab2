package pack

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// The largest amounts that a trace may state. They are far beyond any machine,
// and sums of them over millions of rows do not overflow.
const (
	mostCPUMilli = 1 << 30 // a million cores
	mostRAMMiB   = 1 << 30 // a pebibyte
	mostGPUs     = 1024
	mostSeconds  = 1 << 33 // 272 years: some traces count from 1970
)

// Node is a machine of a trace.
type Node struct {
	Name     string
	CPUMilli int64
	RAMMiB   int64
	GPUs     int
	Model    string // of its GPUs
}

// Task is a task of a trace.
type Task struct {
	Name     string
	CPUMilli int64
	RAMMiB   int64
	GPUs     int
	GPUMilli int      // of each GPU
	Models   []string // of GPU that will do; none means any
	Phase    string
	Line     int    // of the file
	User     string // "" if the trace does not say
	// Priority means something if Ranked is true: the trace says it, or a class of service.
	Priority schema.Priority
	Ranked   bool
	// Used is what it uses, if Measured is true.
	Used     schema.Resources
	Measured bool
	// Arrives is when it arrives, since some moment, and Lasts how long it runs once it has
	// started. Timed says that the trace has both.
	Arrives, Lasts time.Duration
	Timed          bool
}

// service are the priorities of classes of service.
var service = map[string]schema.Priority{"Guaranteed": 210, "LS": 200, "Burstable": 110, "BE": 25}

// gpuMilli returns what the task asks of all GPUs together.
func (t *Task) gpuMilli() int64 { return int64(t.GPUs) * int64(t.GPUMilli) }

// Nodes reads machines from CSV with the columns sn, cpu_milli, memory_mib and,
// where there are GPUs, gpu and model, in any order; other columns are not
// read. The name is that of the file, for errors.
func Nodes(name string, r io.Reader) ([]Node, error) {
	var out []Node
	seen := map[string]int{}
	err := rows(name, r, []string{"sn", "cpu_milli", "memory_mib"}, func(row *record) error {
		n := Node{
			Name: row.text("sn"), CPUMilli: row.amount("cpu_milli", mostCPUMilli, math.Floor), RAMMiB: row.amount("memory_mib", mostRAMMiB, math.Floor),
			GPUs: int(row.amount("gpu", mostGPUs, math.Floor)), Model: row.text("model"),
		}
		if n.Name == "" {
			return row.wrong("sn", "want the machine's name, not nothing")
		}
		if line, ok := seen[n.Name]; ok {
			return row.wrong("sn", fmt.Sprintf("machine %q is on line %d already: want each once", n.Name, line))
		}
		seen[n.Name] = row.line()
		out = append(out, n)
		return nil
	})
	return out, err
}

// Tasks reads tasks from CSV with the columns name, cpu_milli, memory_mib and
// optionally num_gpu, gpu_milli, gpu_spec, pod_phase, user, priority, qos, cpu_used_milli,
// memory_used_mib, creation_time, scheduled_time and deletion_time, in any order; other
// columns are not read. Without gpu_milli a GPU is asked for whole. The name is that of the
// file, for errors.
func Tasks(name string, r io.Reader) ([]Task, error) {
	var out []Task
	err := rows(name, r, []string{"name", "cpu_milli", "memory_mib"}, func(row *record) error {
		t := Task{
			Name: row.text("name"), CPUMilli: row.amount("cpu_milli", mostCPUMilli, math.Ceil), RAMMiB: row.amount("memory_mib", mostRAMMiB, math.Ceil),
			GPUs: int(row.amount("num_gpu", mostGPUs, math.Ceil)), GPUMilli: int(row.amount("gpu_milli", placement.DeviceMilli, math.Ceil)),
			Phase: row.text("pod_phase"), Line: row.line(),
		}
		switch {
		case t.GPUs == 0 && t.GPUMilli > 0:
			return row.wrong("gpu_milli", "is asked of no GPU: want num_gpu 1 or more, or gpu_milli 0")
		case t.GPUs > 0 && t.GPUMilli == 0:
			t.GPUMilli = placement.DeviceMilli
		case t.GPUs > 1 && t.GPUMilli < placement.DeviceMilli:
			return row.wrong("gpu_milli", fmt.Sprintf("a share can be asked of one GPU only, not of %d: want 1000", t.GPUs))
		}
		for model := range strings.SplitSeq(row.text("gpu_spec"), "|") {
			if model = strings.TrimSpace(model); model != "" {
				t.Models = append(t.Models, model)
			}
		}
		if err := t.more(row); err != nil {
			return err
		}
		out = append(out, t)
		return nil
	})
	return out, err
}

// more reads what a trace need not say.
func (t *Task) more(row *record) error {
	if t.User = row.text("user"); t.User != "" {
		if err := schema.CheckName(t.User); err != nil {
			return row.wrong("user", err.Error())
		}
	}
	class := row.text("qos")
	switch {
	case row.text("priority") != "":
		t.Priority, t.Ranked = schema.Priority(row.amount("priority", int64(schema.MaxPriority), math.Floor)), true
	case class != "":
		if t.Priority, t.Ranked = service[class]; !t.Ranked {
			return row.wrong("qos", fmt.Sprintf("%q: want %s", class, strings.Join(slices.Sorted(maps.Keys(service)), ", ")))
		}
	}
	if row.text("cpu_used_milli") != "" && row.text("memory_used_mib") != "" {
		t.Measured = true
		t.Used = schema.Resources{
			CPUMilli: row.amount("cpu_used_milli", mostCPUMilli, math.Ceil), RAMBytes: row.amount("memory_used_mib", mostRAMMiB, math.Ceil) * mebibyte,
		}
	}
	return t.times(row)
}

// times reads when the task arrives, starts and ends.
func (t *Task) times(row *record) error {
	second := func(column string) time.Duration {
		return time.Duration(row.amount(column, mostSeconds, math.Floor)) * time.Second
	}
	arrives, starts, ends := second("creation_time"), second("scheduled_time"), second("deletion_time")
	if row.text("creation_time") == "" || row.text("deletion_time") == "" {
		return nil
	}
	if row.text("scheduled_time") == "" {
		starts = arrives // it did not wait, or never started
	}
	switch {
	case row.err != nil:
		return row.err
	case ends < arrives:
		return row.wrong("deletion_time", fmt.Sprintf("is %s before creation_time: want seconds, the end not before the beginning", arrives-ends))
	case starts < arrives || starts > ends:
		return row.wrong("scheduled_time", "is not between creation_time and deletion_time")
	}
	t.Arrives, t.Lasts, t.Timed = arrives, ends-starts, true
	return nil
}

// record is one row, and the first thing wrong with it.
type record struct {
	file    string
	csv     *csv.Reader
	columns map[string]int
	fields  []string
	err     error
}

// rows calls f for each row. Its errors begin with FILE:LINE.
func rows(file string, r io.Reader, want []string, f func(*record) error) error {
	row := &record{file: file, csv: csv.NewReader(r), columns: map[string]int{}}
	row.csv.ReuseRecord = true
	head, err := row.csv.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: the file is empty: want a header with the columns %s", file, strings.Join(want, ", "))
	} else if err != nil {
		return row.malformed(err)
	}
	for i, name := range head {
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")) // some programs begin a file with this mark
		if _, twice := row.columns[name]; twice && name != "" {
			return fmt.Errorf("%s:1: column %q is there twice: want each once", file, name)
		}
		row.columns[name] = i
	}
	for _, name := range want {
		if _, ok := row.columns[name]; !ok {
			return fmt.Errorf("%s:1: header %q has no column %q: want %s", file, strings.Join(head, ","), name, strings.Join(want, ", "))
		}
	}
	n := 0
	for ; ; n++ {
		if row.fields, err = row.csv.Read(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return row.malformed(err)
		}
		if err = f(row); row.err != nil {
			return row.err // what the numbers say together may follow from it
		} else if err != nil {
			return err
		}
	}
	if n == 0 {
		return fmt.Errorf("%s:1: nothing follows the header: want a row or more", file)
	}
	return nil
}

// malformed says what is wrong with the CSV itself.
func (r *record) malformed(err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("%s:%d: %w", r.file, p.Line, p.Err)
	}
	return fmt.Errorf("%s: %w", r.file, err)
}

func (r *record) line() int {
	line, _ := r.csv.FieldPos(0)
	return line
}

// wrong is an error about a column of the row.
func (r *record) wrong(column, what string) error {
	line := r.line()
	if i, ok := r.columns[column]; ok {
		line, _ = r.csv.FieldPos(i)
	}
	return fmt.Errorf("%s:%d: column %s: %s", r.file, line, column, what)
}

func (r *record) text(column string) string {
	if i, ok := r.columns[column]; ok {
		return strings.Clone(strings.TrimSpace(r.fields[i]))
	}
	return ""
}

// amount returns a number from 0 to the most; nothing is 0. Some traces write
// 16.0, or fractions, which are rounded.
func (r *record) amount(column string, most int64, round func(float64) float64) int64 {
	s := r.text(column)
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if !(err == nil && f >= 0 && round(f) <= float64(most)) { // so that NaN is refused
		if r.err == nil {
			r.err = r.wrong(column, fmt.Sprintf("%q is not a number from 0 to %d", s, most))
		}
		return 0
	}
	return int64(round(f))
}
