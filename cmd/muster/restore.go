package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

func newRestore(std stdio) *cobra.Command {
	var f masterFlags
	var dataDir, cell string
	c := &cobra.Command{
		Use:   "restore SNAPSHOT --data-dir DIR",
		Short: "make a data directory of a snapshot",
		Long: `Make a data directory of a snapshot of the store, which is verified first. The
directory must not be there yet, or be empty: nothing is overwritten.

Machines know what was decided after the snapshot. The master that then starts
with the directory hears them for 60 s before it decides anything, and takes over
what they run. No generation and no epoch is given a second time.`,
		Example: `  muster master restore /backup/local-20260301T120000Z.snapshot --data-dir /var/lib/muster
  muster master --repo /srv/fleet.git --data-dir /var/lib/muster`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || dataDir == "" {
				return invalid("usage: "+cmd.UseLine(), "muster master restore needs a snapshot and --data-dir")
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
			_, err = fmt.Fprintf(std.out, "restored cell %s as of %s: %s, written by muster %s\n",
				info.Cell, info.At.Format(time.RFC3339), schema.Count(info.Documents, "document"), info.Release)
			return err
		},
	}
	f.logLevel = "warn"
	c.Flags().StringVar(&dataDir, "data-dir", "", "directory to make")
	c.Flags().StringVar(&cell, "cell", "", "cell that the snapshot must be of (default: any)")
	return c
}
