package cell

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// InputError is a mistake in the configuration of a cell: its repository, its data
// directory, its addresses. Its text ends in a hint on a line of its own.
type InputError struct{ err error }

func (e *InputError) Error() string { return e.err.Error() }

func (e *InputError) Unwrap() error { return e.err }

func inputError(hint, format string, args ...any) error {
	return &InputError{schema.Hintf(hint, format, args...)}
}

// findCell returns the name of the cell that the master is to lead.
func (m *master) findCell(ctx context.Context) (string, error) {
	if m.cfg.Cell != "" {
		if err := schema.CheckName(m.cfg.Cell); err != nil {
			return "", inputError("take the name of a cell that the repository declares", "--cell: %w", err)
		}
		return m.cfg.Cell, m.checkDeclared(ctx)
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
		return "", inputError("declare one in cells/, or give --cell NAME; `muster validate` shows what does not compile", "repository %s declares no cell", m.repo.Name())
	}
	return "", inputError("give --cell NAME", "repository %s declares %d cells: %s", m.repo.Name(), len(cells), strings.Join(cells, ", "))
}

// checkDeclared errs when a cell that is new here has a name that its repository,
// as far as that can be read now, does not declare, though it declares others.
func (m *master) checkDeclared(ctx context.Context) error {
	if _, err := store.CellOf(m.cfg.DataDir); !errors.Is(err, fs.ErrNotExist) {
		return nil // it was there once, or the store will report it
	}
	cells, err := m.declaredCells(ctx)
	if err != nil || len(cells) == 0 || slices.Contains(cells, m.cfg.Cell) {
		return ctx.Err()
	}
	return inputError("give --cell the name of one of them, or declare it in cells/", "repository %s declares no cell %s: it has %s", m.repo.Name(), m.cfg.Cell, strings.Join(cells, ", "))
}

// declaredCells compiles the repository's head and returns the names of the
// cells that it declares, sorted.
func (m *master) declaredCells(ctx context.Context) ([]string, error) {
	commit, err := m.repo.Head(ctx)
	if err != nil {
		return nil, &InputError{err}
	}
	tree, err := m.repo.Tree(ctx, commit)
	if err != nil {
		return nil, err
	}
	c, err := m.compiler.Compile(ctx, tree)
	if err != nil {
		return nil, err
	}
	objects, _ := reconciler.Take(c)
	names := make([]string, 0, len(objects.Cells))
	for _, cell := range objects.Cells {
		names = append(names, cell.Name)
	}
	return names, nil
}
