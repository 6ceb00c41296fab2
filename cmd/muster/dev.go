package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/cell"
)

func newDev(std stdio) *cobra.Command {
	var f masterFlags
	var dataDir, ports, name string
	var labels, devices, nodes, writable, volumes, capabilities []string
	var worktree bool
	var machines int
	c := &cobra.Command{
		Use:   "dev [DIR]",
		Short: "run a whole cell on this machine for the config repository at DIR",
		Long: `Run a whole cell, master and agent, in the foreground for the config repository
at DIR (default: the current directory). It follows the repository's commits, or
with --worktree each file as it is saved. DIR may also be a URL. The first line on
stdout is the address of the API.

An interrupt stops the tasks and removes everything, except the cell's state with
--data-dir. After a SIGKILL the tasks keep running, and the next start adopts them.

With --hollow N the cell has N hollow machines instead of this one: simulated machines
whose tasks are not processes. See muster hollow.`,
		Example: `  muster dev fleet
  muster dev fleet --worktree
  muster dev fleet --hollow 1000
  muster dev fleet --data-dir ~/.local/state/fleet --listen 127.0.0.1:7420`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := f.config(std)
			if err != nil {
				return err
			}
			cfg.Repo = "."
			if len(args) == 1 {
				cfg.Repo = args[0]
			}
			cfg.DataDir, cfg.Worktree = dataDir, worktree
			agent, err := agentArgs(ports, name, map[string][]string{"label": labels, "device": devices, "device-node": nodes, "volume": volumes, "capability": capabilities}, writable)
			if err != nil {
				return err
			}
			if err := checkHollow(cmd, machines); err != nil {
				return err
			}
			return cell.RunDev(cmd.Context(), cell.DevConfig{
				Hollow: machines, Master: cfg, Agent: filepath.Join(filepath.Dir(cfg.Exe), "muster-agent"), AgentArgs: agent, Stderr: std.err,
			})
		},
	}
	f.add(c, "warn")
	c.Flags().BoolVar(&worktree, "worktree", false, "follow the files of DIR as they are saved instead of commits; DIR need not be a git repository")
	c.Flags().StringVar(&ports, "ports", "", "range of ports for tasks, FIRST-LAST (default: the agent's)")
	c.Flags().StringVar(&name, "name", "", "name of this machine in the cell (default: the host's)")
	c.Flags().StringArrayVar(&labels, "label", nil, "label of this machine, KEY=VALUE; may be repeated")
	c.Flags().StringArrayVar(&devices, "device", nil, "devices of this machine, KIND[:MODEL]=COUNT[,KEY=VALUE]; may be repeated")
	c.Flags().StringArrayVar(&nodes, "device-node", nil, "device file of this machine for tasks with devices of a kind, KIND=PATH; may be repeated")
	c.Flags().StringArrayVar(&writable, "writable", nil, "directory of this machine that tasks may write to, subject to file permissions; all others are read-only for them; may be repeated")
	c.Flags().StringArrayVar(&volumes, "volume", nil, "directory of this machine that jobs may ask for by a name, NAME=PATH or NAME=PATH:ro; may be repeated")
	c.Flags().StringArrayVar(&capabilities, "capability", nil, "capability of Linux that tasks of this machine may have if their tenant may (default: NET_BIND_SERVICE), or none; may be repeated")
	c.Flags().IntVar(&machines, "hollow", 0, "number of hollow machines to run instead of this one (default: none)")
	c.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the cell (default: one for this repository, removed when the cell is stopped by an interrupt)")
	return c
}

// checkHollow errs for a number of hollow machines that cannot be, and for flags of a
// machine that is not there then.
func checkHollow(cmd *cobra.Command, machines int) error {
	if !cmd.Flags().Changed("hollow") {
		return nil
	}
	for _, flag := range []string{"ports", "name", "label", "device", "device-node", "writable", "volume", "capability"} {
		if cmd.Flags().Changed(flag) {
			return invalid("leave one of the two out", "--%s is of this machine, and with --hollow that is not in the cell", flag)
		}
	}
	return checkCount("--hollow", machines)
}

// agentArgs are the flags of dev that are the agent's: lists by their names, and
// directories that may be given relative to the working directory.
func agentArgs(ports, name string, lists map[string][]string, writable []string) ([]string, error) {
	var args []string
	if ports != "" {
		args = append(args, "--ports", ports)
	}
	if name != "" {
		args = append(args, "--name", name)
	}
	for _, flag := range slices.Sorted(maps.Keys(lists)) {
		for _, value := range lists[flag] {
			args = append(args, "--"+flag, value)
		}
	}
	for _, dir := range writable {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		if info, err := os.Stat(abs); err != nil || !info.IsDir() || abs == "/" {
			return nil, invalid("name a directory that is there, and not /", "--writable %s is no directory of which tasks can be given all", dir)
		}
		args = append(args, "--writable", abs)
	}
	return args, nil
}
