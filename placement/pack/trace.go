package pack

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
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
	Class    string   // quality of service
	Phase    string
}

// gpuMilli returns what the task asks of all GPUs together.
func (t *Task) gpuMilli() int64 { return int64(t.GPUs) * int64(t.GPUMilli) }

// Nodes reads machines from CSV with the columns sn, cpu_milli, memory_mib and,
// where there are GPUs, gpu and model, in any order.
func Nodes(r io.Reader) ([]Node, error) {
	var out []Node
	err := rows(r, []string{"sn", "cpu_milli", "memory_mib"}, func(row record) {
		out = append(out, Node{
			Name: row.text("sn"), CPUMilli: row.number("cpu_milli"), RAMMiB: row.number("memory_mib"),
			GPUs: int(row.number("gpu")), Model: row.text("model"),
		})
	})
	return out, err
}

// Tasks reads tasks from CSV with the columns name, cpu_milli, memory_mib and
// optionally num_gpu, gpu_milli, gpu_spec, qos and pod_phase, in any order.
func Tasks(r io.Reader) ([]Task, error) {
	var out []Task
	err := rows(r, []string{"name", "cpu_milli", "memory_mib"}, func(row record) {
		t := Task{
			Name: row.text("name"), CPUMilli: row.number("cpu_milli"), RAMMiB: row.number("memory_mib"),
			GPUs: int(row.number("num_gpu")), GPUMilli: int(row.number("gpu_milli")),
			Class: row.text("qos"), Phase: row.text("pod_phase"),
		}
		if spec := row.text("gpu_spec"); spec != "" {
			t.Models = strings.Split(spec, "|")
		}
		out = append(out, t)
	})
	return out, err
}

// record is one row, and the first thing wrong with any row.
type record struct {
	columns map[string]int
	fields  []string
	line    int
	err     *error
}

// rows calls f for each row. It errs when a wanted column is missing or a
// number is none.
func rows(r io.Reader, want []string, f func(record)) error {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	head, err := c.Read()
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	var bad error
	row := record{columns: map[string]int{}, line: 1, err: &bad}
	for i, name := range head {
		row.columns[strings.TrimSpace(name)] = i
	}
	for _, name := range want {
		if _, ok := row.columns[name]; !ok {
			return fmt.Errorf("header %q: no column %q", strings.Join(head, ","), name)
		}
	}
	for bad == nil {
		row.line++
		if row.fields, err = c.Read(); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("line %d: %w", row.line, err)
		}
		f(row)
	}
	return bad
}

func (r record) text(column string) string {
	if i, ok := r.columns[column]; ok {
		return strings.Clone(strings.TrimSpace(r.fields[i]))
	}
	return ""
}

func (r record) number(column string) int64 {
	s := r.text(column)
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64) // some traces write 16.0
	if (err != nil || f < 0) && *r.err == nil {
		*r.err = fmt.Errorf("line %d: column %s: %q is not a number from 0", r.line, column, s)
	}
	return int64(f)
}
