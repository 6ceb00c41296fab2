// Command muster-agent runs on each machine of a cell: it dials the master and
// makes the machine match what the master assigns to it.
//
// In: flags, and the state directory that an agent before it may have left. Out:
// running tasks, reports over the link, and /metrics on loopback if asked for.
// It links no CUE, no etcd and no git: there are many agents. It never stops a
// task because it ends itself, unless it got SIGINT.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/musterhq/muster/nodeagent/link"
	"github.com/musterhq/muster/schema"
	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// The exit codes, as for every command of muster.
const (
	exitUsage  = 2 // the input is invalid
	exitFailed = 3 // could not do it
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its world as arguments.
func run(args []string, stdout, stderr io.Writer) int {
	cmd := command()
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "muster-agent:", err)
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(stderr, "hint:", cmp.Or(usage.hint, seeHelp))
		return exitUsage
	}
	if errors.Is(err, link.ErrNotJoined) {
		fmt.Fprintln(stderr, "hint: create another token with `muster pki token MACHINE`, and name its file with --token-file")
	}
	return exitFailed
}

// seeHelp is the hint to a mistake whose message says all.
const seeHelp = "see muster-agent --help"

// usageError is a mistake in what was typed.
type usageError struct {
	error
	hint string // "" is seeHelp
}

func (e usageError) Unwrap() error { return e.error }

func command() *cobra.Command {
	f := &flags{ports: schema.PortRange{First: 20000, Last: 29999}}
	cmd := &cobra.Command{
		Use:   "muster-agent --master ADDRESS --state-dir DIR",
		Short: "Run the tasks that a cell's master assigns to this machine",
		Long: `muster-agent runs on each machine of a cell. It connects to the master, runs the tasks
that the master assigns to this machine, and reports their state. While no master can
be reached it keeps them running.

With --master unix:PATH the master is on this machine, and --cell says which cell it
leads. With --master HOST:PORT the machine joins once, with the token in --token-file,
and gets a certificate, which is kept in the state directory and renewed automatically.
The token is not used again, and the file may stay.

Tasks outlive the agent. On SIGTERM it ends and leaves them running; the next
agent on the same state directory takes them over. On SIGINT it stops all tasks
first (SIGTERM, then SIGKILL after each one's grace period); a second SIGINT
ends the agent at once.`,
		Example: `  muster-agent --cell local --master unix:/run/muster/link.sock --state-dir /var/lib/muster-agent
  muster-agent --master master.example.com:7421 --token-file /etc/muster/token --state-dir /var/lib/muster-agent`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unexpected argument %q", args[0]), ""}
			}
			return nil
		},
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil || f.onlyCheck {
				return err
			}
			return serve(cmd.Context(), f, cmd.ErrOrStderr())
		},
	}
	f.register(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err, ""} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.Version = version
	cmd.SetVersionTemplate("muster-agent {{.Version}}\n")
	cmd.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Example: "  muster-agent version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "muster-agent", version) },
	})
	return cmd
}
