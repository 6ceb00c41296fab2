package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/cmd/internal/cell"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/reconciler/web/client"
)

// The exit codes.
const (
	exitOK       = 0
	exitDiffers  = 1 // differences, or not converged
	exitInvalid  = 2 // the input is invalid
	exitCouldNot = 3
)

// failure is an error that knows its exit code and the user's way out. An
// error that is none exits with exitCouldNot.
type failure struct {
	code int
	err  error  // nil when what is wrong has been printed already
	hint string // what to do, on a line of its own
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// invalid returns a failure for input that is wrong, with the way out.
func invalid(hint, format string, args ...any) error {
	return &failure{code: exitInvalid, err: fmt.Errorf(format, args...), hint: hint}
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	root := newRoot(std)
	root.SetArgs(args)
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitCouldNot // whoever read our output has gone away, and knows
	}
	code, hint := verdictOf(err)
	if msg := screen.Error(err); msg != "" {
		screen.Printf(std.err, "muster: %s\n", msg)
	}
	if hint != "" {
		screen.Printf(std.err, "hint: %s\n", hint)
	}
	return code
}

// verdictOf returns the exit code of an error and the way out of it.
func verdictOf(err error) (code int, hint string) {
	var f *failure
	var input *cell.InputError
	var foreign *store.ForeignError
	var answer *client.Error
	switch {
	case errors.As(err, &f):
		return f.code, f.hint
	case errors.As(err, &input), errors.As(err, &foreign):
		return exitInvalid, ""
	case errors.As(err, &answer) && answer.Code >= 400 && answer.Code < 500:
		return exitInvalid, answer.Hint
	case errors.As(err, &answer):
		return exitCouldNot, answer.Hint
	}
	return exitCouldNot, ""
}

func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "run jobs on your machines, driven by a Git repository",
		Long: `muster runs jobs on your machines, driven by a Git repository.

Jobs, quotas and tenants are written in CUE in a config repository. A commit is the
only way to change the desired state; muster makes the cell match it, and keeps it so.

Exit codes: 0 yes, 1 differences / not converged, 2 invalid input, 3 failed (e.g.
master unreachable).`,
		Example: `  muster demo                 demonstrate a whole cell, in about a minute
  muster init fleet           create a config repository
  muster dev fleet            run a cell on this machine that follows it
  muster status --master unix:/var/lib/muster/link/api.sock`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Version:           version,
	}
	root.SetVersionTemplate(versionLine())
	root.SetHelpCommand(newHelp())
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newInit(std), newValidate(std), newTest(std), newRender(std), newDiff(std), newExplain(std), newSet(std), newLSP(std), newPlan(std), newComment(std), newSchema(std), newVendor(std), newImage(std), newSecret(std),
		newDev(std), newMaster(std), newHollow(std), newPKI(std), newDemo(std),
		newStatus(std), newEndpoints(std), newServices(std), newTop(std), newWhy(std), newEvents(std), newHistory(std), newPage(std), newLogs(std), newExec(std), newCp(std), newWait(std), newReconcile(std), newSuspend(std), newResume(std), newRestart(std), newRollback(std), newMachine(std),
		newSimulate(std), newCheckpoint(std),
		newVersion(std), newCompletion(std), newCompileChild(std), newPlanChild(std), newServe(),
	)
	root.InitDefaultHelpCmd()
	wrapArgs(root)
	completeNames(root)
	return root
}

// newHelp is help as a command. Of what is no command it says so, as the command
// would.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "show the help of a command",
		Example: "  muster help status",
		Args:    cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
			if at, _, err := cmd.Root().Find(args); err == nil {
				for _, sub := range at.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), typed) {
						found = append(found, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return found, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			at, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && at.HasSubCommands() {
				return choose(at, append(rest, args...)[:1])
			}
			at.InitDefaultHelpFlag()
			at.InitDefaultVersionFlag()
			return at.Help()
		},
	}
}

// flagError says what a flag wants that was given something else.
func flagError(cmd *cobra.Command, err error) error {
	hint := cmd.CommandPath() + " --help lists the flags"
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "" && strings.Trim(unknown.GetSpecifiedShortnames(), "0123456789.") == "" {
		hint = "a number below 0 is no flag after --: " + cmd.CommandPath() + " … -- -" + unknown.GetSpecifiedShortnames()
	}
	if errors.As(err, &value) {
		switch kind := value.GetFlag().Value.Type(); {
		case strings.HasPrefix(value.Unwrap().Error(), "time: "):
			hint = "a number with its unit, such as 30s, 5m or 2h"
		case kind == "int" || kind == "uint64":
			err = fmt.Errorf("invalid argument %q for %q flag: want a whole number", value.GetValue(), "--"+value.GetFlag().Name)
		}
	}
	return &failure{code: exitInvalid, err: fmt.Errorf("%s: %w", cmd.CommandPath(), err), hint: hint}
}

// byCommit says how a commit does what other systems have a command for.
var byCommit = map[string]string{
	"apply":   "commit to the config repository; muster validate checks it, and muster wait waits until the cell runs it",
	"deploy":  "commit to the config repository; muster validate checks it, and muster wait waits until the cell runs it",
	"run":     "declare a job in the config repository, and commit; one of kind batch runs to its end",
	"scale":   "change tasks of the job in the config repository, and commit",
	"delete":  "remove the job from the config repository, and commit",
	"stop":    "remove the job from the config repository, and commit",
	"cordon":  "declare the machine in the config repository with cordon: true, and commit",
	"drain":   "declare the machine in the config repository with drain: {}, and commit; muster wait machine NAME waits until it is empty",
	"promote": "commit with the trailer Muster-Promote: USER/JOB",
}

// choose is what a command does that is only a name for others.
func choose(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := cmd.CommandPath() + " --help lists the commands"
	if commit := byCommit[args[0]]; commit != "" && !cmd.HasParent() {
		hint = commit
	} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		at := ", " + cmd.CommandPath() + " "
		hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(near, at)
	}
	return invalid(hint, "there is no command %q", strings.Join(append(strings.Fields(cmd.CommandPath())[1:], args[0]), " "))
}

// wrapArgs makes a wrong number of operands an invalid input, with the usage
// as the way out; of c and of the commands below it.
func wrapArgs(c *cobra.Command) {
	for _, sub := range c.Commands() {
		wrapArgs(sub)
	}
	if c.HasSubCommands() && !c.Runnable() {
		c.Args, c.RunE = cobra.ArbitraryArgs, choose
		return
	}
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return &failure{code: exitInvalid, err: fmt.Errorf("%s: %w", cmd.CommandPath(), err), hint: "usage: " + cmd.UseLine()}
		}
		return nil
	}
}
