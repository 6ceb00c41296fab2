package cell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// NameError says that it is not clear which cell is meant.
type NameError struct {
	err  error
	hint string
}

func (e *NameError) Error() string { return e.err.Error() }

// Hint is the way out.
func (e *NameError) Hint() string { return e.hint }

// findCell returns the name of the cell that the master is to lead.
func (m *master) findCell(ctx context.Context) (string, error) {
	if m.cfg.Cell != "" {
		if err := schema.CheckName(m.cfg.Cell); err != nil {
			return "", &NameError{fmt.Errorf("--cell: %w", err), "take the name of a cell that the repository declares"}
		}
		return m.cfg.Cell, nil
	}
	switch cell, err := store.CellOf(m.cfg.DataDir); {
	case err == nil:
		return cell, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	cells, err := m.declaredCells(ctx)
	if err != nil {
		return "", err
	}
	switch len(cells) {
	case 1:
		return cells[0], nil
	case 0:
		return "", &NameError{fmt.Errorf("repository %s declares no cell", m.cfg.Repo), "declare one in cells/, or give --cell NAME; `muster validate` tells whether something does not compile"}
	}
	return "", &NameError{fmt.Errorf("repository %s declares %d cells: %s", m.cfg.Repo, len(cells), strings.Join(cells, ", ")), "give --cell NAME"}
}

// declaredCells compiles the repository's head and returns the names of the
// cells that it declares, sorted.
func (m *master) declaredCells(ctx context.Context) ([]string, error) {
	commit, err := m.repo.Head(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := m.repo.Tree(ctx, commit)
	if err != nil {
		return nil, err
	}
	c, err := m.compiler.Compile(ctx, tree)
	if err != nil {
		return nil, err
	}
	objects, _ := reconciler.Check(c)
	names := make([]string, 0, len(objects.Cells))
	for _, cell := range objects.Cells {
		names = append(names, cell.Name)
	}
	return names, nil
}
