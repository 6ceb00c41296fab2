package bench

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

var (
	machines = flag.Int("cell.machines", 0, "measure a cell of so many machines, against its budgets")
	tasks    = flag.Int("cell.tasks", 10, "tasks for each machine; with others than 10 it is held to no budgets")
	results  = flag.String("cell.json", "", "file to write the results to")
	profiles = flag.String("cell.profiles", "", "directory to write profiles of master and machines to")
	loads    = flag.String("cell.loads", "", "apply these loads, separated by commas, and hold them to no budgets")
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// config measures a small cell as quickly as it can.
func config(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "mb-") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return Config{
		Muster: filepath.Join(binaries.Dir(t), "muster"), Dir: dir, Machines: 50, Tasks: *tasks,
		Steady: 2 * time.Second, Edits: 3, Arrivals: 3, LostAfter: 15 * time.Second, Progress: t.Output(),
	}
}

// TestCell puts each load on a cell, and holds that all of it is measured: on a small one,
// for which it is no matter what it takes, since other tests run beside it; or, as
// make bench-cell does, on one of -cell.machines, held to its budgets.
func TestCell(t *testing.T) {
	cfg := config(t)
	if *machines == 0 {
		t.Parallel()
	} else {
		cfg.Machines, cfg.Steady, cfg.Edits, cfg.Arrivals, cfg.LostAfter, cfg.Profiles = *machines, 30*time.Second, 20, 60, time.Minute, *profiles
		cfg.Loads = strings.FieldsFunc(*loads, func(r rune) bool { return r == ',' })
	}
	r, err := Run(t.Context(), cfg)
	if r == nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Error(err)
	}
	for i, row := range r.Rows {
		if math.IsNaN(row.Value) || row.Value < 0 && row.Load != "loss" || r.find(row.Load, row.Measure) != &r.Rows[i] {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	if ended := r.find("restart", "tasks that ended"); len(cfg.Loads) == 0 && ended == nil || ended != nil && ended.Value != 0 {
		t.Errorf("tasks that ended with the master: %+v", ended)
	}
	if *machines == 0 {
		holdsBudgetsOf(t, r)
		return
	}
	if len(cfg.Loads) == 0 && cfg.Tasks == 10 {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	if err := r.Table(t.Output()); err != nil {
		t.Error(err)
	}
	if *results == "" {
		return
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*results, append(b, '\n'), 0o600); err != nil {
		t.Error(err)
	}
}

// holdsBudgetsOf holds that each budget, of any size of cell, is of a row that is measured.
func holdsBudgetsOf(t *testing.T, r *Result) {
	t.Helper()
	var sizes map[string][]budget
	if err := json.Unmarshal(budgetFile, &sizes); err != nil {
		t.Fatal(err)
	}
	for size, list := range sizes {
		for _, b := range list {
			if r.find(b.Load, b.Measure) == nil || b.Expected < 0 || b.Margin < 1 {
				t.Errorf("%s machines: %+v is of no row, or no bound", size, b)
			}
		}
	}
}

// TestCheck holds a result to its budgets.
func TestCheck(t *testing.T) {
	t.Parallel()
	list, err := budgets(1000)
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	r := &Result{Machines: 1000}
	for _, b := range list {
		r.Rows = append(r.Rows, Row{Load: b.Load, Measure: b.Measure, Value: b.Expected * b.Margin})
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	r.Rows[0].Value++
	if r.Check() == nil {
		t.Error("over the budget, and it holds")
	}
	r.Rows = r.Rows[1:]
	if r.Check() == nil {
		t.Error("a budget without a row, and it holds")
	}
}
