package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

func newCheckpoint(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:   "checkpoint",
		Short: "save a whole cell to a file, to look at and to plan on",
		Example: `  muster checkpoint save local.checkpoint
  muster status --checkpoint local.checkpoint`,
	}
	c.AddCommand(newCheckpointSave(std), newCheckpointShow(std))
	return c
}

func newCheckpointSave(std stdio) *cobra.Command {
	var m masterFlag
	var values bool
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "save the cell to a file",
		Long: `Save the cell to a file: what is desired, assigned and observed, machines, quotas and
usage, as the master knows them at this moment. The file is compressed, and later
releases read it.

Values of environment variables, the contents of files, and the ciphertexts of secrets
are replaced by digests under a key of the file; --with-values keeps them, and requires
the role operator. All else, commands among it, is as it is: the file is readable by you
alone.`,
		Example: `  muster checkpoint save local.checkpoint
  muster why search/web --checkpoint local.checkpoint`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := m.client()
			if err != nil {
				return err
			}
			saved, err := saveCheckpoint(cmd.Context(), cl, args[0], values)
			if err != nil {
				return err
			}
			err = screen.Fprintf(tamed(std.out), "saved cell %s as of %s to %s: %s\n", saved.Cell, saved.At.Format(time.RFC3339), args[0], contents(&saved.Header))
			return err
		},
	}
	m.add(c)
	c.Flags().BoolVar(&values, "with-values", false, "keep the values of environment variables, files and secrets")
	return c
}

// saveCheckpoint writes a checkpoint to a file when all of it has come and can be read.
func saveCheckpoint(ctx context.Context, cl *client.Client, name string, values bool) (*checkpoint.Cell, error) {
	from, err := cl.Checkpoint(ctx, values)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	var saved *checkpoint.Cell
	err = atomicfile.WriteFrom(name, 0o600, func(w io.Writer) error {
		to := bufio.NewWriterSize(w, 1<<20)
		all := io.TeeReader(from, to)
		if saved, err = checkpoint.Read(all); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, all); err != nil { // what is said after its end
			return err
		}
		return to.Flush()
	})
	if err != nil {
		return nil, fmt.Errorf("save a checkpoint to %s: %w", name, err)
	}
	return saved, nil
}

// contents says how much a checkpoint holds.
func contents(h *checkpoint.Header) string {
	return fmt.Sprintf("%s, %s, %s", schema.Count(h.Machines, "machine"), schema.Count(h.Jobs, "job"), schema.Count(h.Tasks, "task"))
}

func newCheckpointShow(std stdio) *cobra.Command {
	var out *outputFlag
	c := &cobra.Command{
		Use:   "show FILE",
		Short: "show what a checkpoint is of",
		Long: `Show what a checkpoint is of: the cell, when, by which release, and how much it holds.
muster status, why and top show what is in it with --checkpoint.`,
		Example: "  muster checkpoint show local.checkpoint\n  muster checkpoint show local.checkpoint -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := readCheckpoint(args[0])
			if err != nil {
				return err
			}
			if out.value == "json" {
				h := c.Header
				h.Redaction = ""
				return printJSON(std.out, shownCheckpoint{h, c.State.Head.Commit, c.Redaction == ""})
			}
			values := "without values: they are replaced by digests"
			if c.Redaction == "" {
				values = "with values"
			}
			err = screen.Fprintf(tamed(std.out), "cell %s as of %s\ncommit %s, applied %s\n%s\n%s\nformat %d, written by muster %s\n",
				c.Cell, c.At.Format(time.RFC3339), short(c.Commit), short(c.State.Head.Commit), contents(&c.Header), values, c.Version, c.Release)
			return err
		},
	}
	out = addOutput(c, "text", "json")
	return c
}

// shownCheckpoint is what `muster checkpoint show -o json` prints.
type shownCheckpoint struct {
	checkpoint.Header
	Applied string `json:"applied"` // commit whose data is in force
	Values  bool   `json:"values"`  // it has the values of environment variables, files and secrets
}

// readCheckpoint reads a file.
func readCheckpoint(name string) (*checkpoint.Cell, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid("`muster checkpoint save` writes one", "checkpoint %s: there is no such file", name)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := checkpoint.Read(f)
	if err != nil {
		message, hint := schema.HintOf(err)
		return nil, invalid(hint, "checkpoint %s: %s", name, message)
	}
	return c, nil
}

// lookFlag is how a command that looks finds the cell: live, or in a checkpoint.
type lookFlag struct {
	masterFlag
	file string
}

func (f *lookFlag) add(c *cobra.Command) {
	f.masterFlag.add(c)
	c.Flags().StringVar(&f.file, "checkpoint", "", "look at the cell in a `file` that muster checkpoint save wrote, and ask no master")
}

// client returns a client of the cell that the flags or the environment name.
func (f *lookFlag) client() (*client.Client, error) {
	if f.file == "" {
		return f.masterFlag.client()
	}
	if f.url != "" {
		return nil, invalid("leave one of them out", "both --master and --checkpoint are given")
	}
	c, err := readCheckpoint(f.file)
	if err != nil {
		return nil, err
	}
	refused := offline{f.file}
	s := web.New(web.Config{
		Name: c.Cell, Cell: c.Look(), Logs: refused, Events: refused, Repository: refused, Suspensions: refused, Restarts: refused, Machines: refused,
		Checkpoints: refused, History: refused, Exec: refused, NoExec: true, Audit: func(schema.Event) {}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	return client.Offline(s.Reader(), f.file), nil
}

// offline refuses what only a live cell can do.
type offline struct{ file string }

func (o offline) err() error {
	return &client.Error{Message: cmp.Or(o.file, "a checkpoint") + " is a checkpoint: only a live cell can do that", Hint: "name a master with --master"}
}

func (o offline) Logs(context.Context, string, schema.LogRequest) (io.ReadCloser, error) {
	return nil, o.err()
}

func (o offline) Exec(context.Context, string, schema.ExecRequest) (io.ReadWriteCloser, error) {
	return nil, o.err()
}

func (o offline) Since(schema.EventQuery) ([]schema.EventRecord, error) { return nil, o.err() }

func (o offline) Wait(context.Context, uint64) error { return o.err() }

func (o offline) Look(context.Context) (*status.Look, error) { return nil, o.err() }

func (o offline) Standing(context.Context, string) (*status.Standing, error) { return nil, o.err() }

func (o offline) Suspend(context.Context, schema.Suspension, time.Duration) (*schema.Suspension, error) {
	return nil, o.err()
}

func (o offline) Resume(context.Context, string, string) (*schema.Suspension, error) {
	return nil, o.err()
}

func (o offline) Restart(context.Context, schema.RestartRequest) (*schema.Restarting, error) {
	return nil, o.err()
}

func (o offline) CancelRestart(context.Context, string, string) (*schema.Restarting, error) {
	return nil, o.err()
}

func (o offline) Forget(context.Context, string, schema.Forgotten, bool) (*schema.Forgetting, error) {
	return nil, o.err()
}

func (o offline) Answer(string, int) (any, error) { return nil, o.err() }

func (o offline) Checkpoint(context.Context, bool) (func(io.Writer) error, error) {
	return nil, o.err()
}
