package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

func newRestore(std stdio) *cobra.Command {
	var f masterFlags
	var dataDir, cell string
	c := &cobra.Command{
		Use:   "restore SNAPSHOT --data-dir DIR",
		Short: "restore a data directory from a snapshot",
		Long: `Restore a data directory from a snapshot of the store, which is verified first. The
directory must not exist yet or be empty: nothing is overwritten.

Agents know what was decided after the snapshot. A master that starts with the restored
directory collects their reports for 60 s before it decides anything, and adopts the
tasks that they run. No generation or epoch is used twice.`,
		Example: `  muster master restore /backup/local-20260301T120000Z.snapshot --data-dir /var/lib/muster
  muster master --repo /srv/fleet.git --data-dir /var/lib/muster`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dataDir == "" {
				return invalid("usage: "+cmd.UseLine(), "muster master restore needs a snapshot and --data-dir")
			}
			if err := schema.CheckName(cell); err != nil && cell != "" {
				return invalid("leave it out for any cell", "--cell: %w", err)
			}
			log, err := f.logger(std)
			if err != nil {
				return err
			}
			info, err := store.Restore(cmd.Context(), store.RestoreConfig{
				Snapshot: args[0], Dir: dataDir, Cell: cell, Release: version, Log: log, Now: time.Now(),
			})
			if err != nil {
				return err
			}
			err = screen.Fprintf(std.out, "restored cell %s as of %s: %s, written by muster %s\n",
				info.Cell, info.At.Format(time.RFC3339), schema.Count(info.Documents, "document"), info.Release)
			return err
		},
	}
	f.logLevel = "warn"
	c.Flags().StringVar(&dataDir, "data-dir", "", "directory to create")
	c.Flags().StringVar(&cell, "cell", "", "name that the cell of the snapshot must have (default: any)")
	return c
}
