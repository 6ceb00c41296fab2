package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newCompletion(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash | zsh | fish",
		Short: "print the shell completion script",
		Long: `Print the completion script for bash, zsh or fish. It completes commands, flags and
their values, and the names of jobs, tasks and machines. Names are requested from the
master that --master or MUSTER_MASTER names; none are offered when it does not answer
within a second.`,
		Example: `  muster completion bash > ~/.local/share/bash-completion/completions/muster
  muster completion zsh > ~/.zfunc/_muster        with: fpath+=~/.zfunc; autoload -U compinit; compinit
  muster completion fish > ~/.config/fish/completions/muster.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "zsh":
				return root.GenZshCompletion(std.out)
			case "fish":
				return root.GenFishCompletion(std.out, true)
			default:
				return root.GenBashCompletionV2(std.out, true)
			}
		},
	}
}

// lookTimeout is how long a completion waits for the master: a shell stands
// still meanwhile.
const lookTimeout = time.Second

// operandNames says what the first operand of a command names.
type operandNames struct{ jobs, tasks, machines, all bool }

// operands are the commands whose operands the master knows.
var operands = map[string]operandNames{
	"status":  {jobs: true, tasks: true, machines: true},
	"top":     {jobs: true, tasks: true, machines: true},
	"events":  {jobs: true, tasks: true, machines: true},
	"why":     {jobs: true, tasks: true},
	"logs":    {jobs: true, tasks: true},
	"exec":    {tasks: true},
	"wait":    {jobs: true, machines: true},
	"restart": {jobs: true},
	"suspend": {jobs: true, all: true},
	"resume":  {jobs: true, all: true},
}

// completeNames makes c and the commands below it complete their operands and the
// values of flags that have a fixed set of them.
func completeNames(c *cobra.Command) {
	for _, sub := range c.Commands() {
		completeNames(sub)
	}
	if n, ok := operands[c.Name()]; ok && c.Parent() == c.Root() {
		c.ValidArgsFunction = n.complete
	}
	if c.Name() == "forget" {
		c.ValidArgsFunction = operandNames{machines: true}.complete
	}
	if c.Name() == "rollback" {
		c.ValidArgsFunction = completeDeclared
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if fixed, ok := f.Value.(*outputFlag); ok {
			// It errs for a flag that c has not, or twice: neither can be.
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(fixed.formats, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	if c.Parent() != c.Root() {
		return
	}
	switch c.Name() {
	case "status":
		_ = c.RegisterFlagCompletionFunc("state", completeStates)
	case "events":
		_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	}
}

// completeStates offers the states of a task that a list, separated by commas, may
// go on with.
func completeStates(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var found []string
	for _, s := range stateNames() {
		if !slices.Contains(strings.Split(before, ","), s) && strings.HasPrefix(before+s, typed) {
			found = append(found, before+s)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeDeclared offers the jobs of the repository in the current directory, and
// after that the directory of another.
func completeDeclared(cmd *cobra.Command, args []string, typed string) (found []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	ctx, cancel := lookContext(cmd)
	defer cancel()
	c, err := compileRepo(ctx, ".", "", reconciler.Take)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for i := range c.objects.Jobs {
		if name := c.objects.Jobs[i].User + "/" + c.objects.Jobs[i].Name; strings.HasPrefix(name, typed) {
			found = append(found, name)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// lookContext ends when a shell has waited long enough.
func lookContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, lookTimeout)
}

// complete asks the master for the names that begin with what was typed. It says
// nothing when there is no answer: whoever presses a key did not ask for an error.
func (n operandNames) complete(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	wanted := n
	if len(args) == 1 && args[0] == "machine" && n.machines {
		wanted = operandNames{machines: true}
	} else if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s := lookFor(cmd, typed)
	if s == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, more := wanted.matching(s, typed)
	if more {
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// lookFor returns the status of the cell, or of the job that was typed; nil if the
// master does not answer.
func lookFor(cmd *cobra.Command, typed string) *status.Status {
	flag := func(name string) string {
		s, _ := cmd.Flags().GetString(name) // "" if the command has no such flag
		return s
	}
	m := masterFlag{url: flag("master"), ca: flag("ca"), cert: flag("cert"), key: flag("key")}
	cl, err := m.client()
	if err != nil {
		return nil
	}
	defer cl.Close()
	ctx, cancel := lookContext(cmd)
	defer cancel()
	var q client.StatusQuery
	if user, rest, ok := strings.Cut(typed, "/"); ok {
		if job, _, ok := strings.Cut(rest, "/"); ok {
			q.Group.Name = user + "/" + job
		}
	}
	s, _, err := cl.Status(ctx, q)
	if err != nil {
		return nil
	}
	return s
}

// matching returns the names that begin with what was typed, sorted. A job is
// offered without its tasks until its name is complete; more says that a task of
// one of them is wanted.
func (n operandNames) matching(s *status.Status, typed string) (found []string, more bool) {
	add := func(name string) {
		if strings.HasPrefix(name, typed) {
			found = append(found, name)
		}
	}
	if n.all {
		add(schema.AllJobs)
	}
	if n.machines {
		for i := range s.Machines {
			add(s.Machines[i].Name)
		}
	}
	if strings.Count(typed, "/") == 2 {
		for i := 0; i < len(s.Tasks) && n.tasks; i++ {
			add(s.Tasks[i].Name)
		}
	} else if n.jobs || n.tasks {
		slash := ""
		if more = !n.jobs; more {
			slash = "/"
		}
		for i := range s.Jobs {
			add(s.Jobs[i].Name + slash)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), more
}
