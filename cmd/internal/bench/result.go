package bench

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// Row is one thing that was measured.
type Row struct {
	Load    string  `json:"load"`
	Measure string  `json:"measure"`
	Unit    string  `json:"unit,omitempty"`
	Value   float64 `json:"value"`
	// Budget is the most that Value may be; nil: there is no bound for a cell of this
	// size. It is Margin times what was expected.
	Budget *float64 `json:"budget,omitempty"`
	Margin float64  `json:"margin,omitempty"`
}

// Result is what a run has measured.
type Result struct {
	Machines int   `json:"machines"`
	Tasks    int   `json:"tasks"`
	Rows     []Row `json:"rows"`
}

// budget is the bound of a row.
type budget struct {
	Load    string `json:"load"`
	Measure string `json:"measure"`
	// Expected is what a run on a machine with nothing else on it measures, and Margin
	// how many times as much it may be before the run fails: what others do on the
	// machine, and how far two runs differ.
	Expected float64 `json:"expected"`
	Margin   float64 `json:"margin"`
}

//go:embed budgets.json
var budgetFile []byte

// budgets returns the budgets of a cell of so many machines.
func budgets(machines int) ([]budget, error) {
	var all map[string][]budget
	if err := json.Unmarshal(budgetFile, &all); err != nil {
		return nil, fmt.Errorf("budgets.json: %w", err)
	}
	return all[strconv.Itoa(machines)], nil
}

func (c *cell) result() *Result {
	return &Result{Machines: c.cfg.Machines, Tasks: c.repo.tasks(), Rows: c.rows}
}

// Check sets the rows' budgets. It errs when a row is over its budget, and when a
// budget has no row.
func (r *Result) Check() error {
	list, err := budgets(r.Machines)
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range list {
		row := r.find(b.Load, b.Measure)
		if row == nil {
			errs = append(errs, fmt.Errorf("%s: %s: it has a budget, and was not measured", b.Load, b.Measure))
			continue
		}
		most := b.Expected * b.Margin
		row.Budget, row.Margin = &most, b.Margin
		if row.Value > most {
			errs = append(errs, fmt.Errorf("%s: %s is %.4g %s: the budget is %.4g", row.Load, row.Measure, row.Value, row.Unit, most))
		}
	}
	return errors.Join(errs...)
}

func (r *Result) find(load, measure string) *Row {
	for i := range r.Rows {
		if r.Rows[i].Load == load && r.Rows[i].Measure == measure {
			return &r.Rows[i]
		}
	}
	return nil
}

// Table writes the rows for people.
func (r *Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "LOAD\tMEASURE\tVALUE\tBUDGET\tMARGIN\n")
	for _, x := range r.Rows {
		most, margin := "-", "-"
		if x.Budget != nil {
			most, margin = fmt.Sprintf("%.4g", *x.Budget), fmt.Sprintf("%g", x.Margin)
		}
		fmt.Fprintf(t, "%s\t%s\t%.4g %s\t%s\t%s\n", x.Load, x.Measure, x.Value, x.Unit, most, margin)
	}
	return t.Flush()
}
