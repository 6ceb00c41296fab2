package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

func newRestart(std stdio) *cobra.Command {
	var m masterFlag
	var out *outputFlag
	r := restartCommand{std: std}
	c := &cobra.Command{
		Use:        "restart USER/JOB | USER/JOB/INDEX",
		SuggestFor: []string{"bounce", "recreate"},
		Short:      "restart the tasks of a job, or one task, without a commit",
		Long: `Restart the running tasks of a job, or one of them: each gets a new process of the
version that it runs, on the same machine if that has room. The number of tasks that
are down at once is limited by the job's update policy and disruption budget. The
desired state does not change, and a restart survives a restart of the master.

Pending tasks and completed ones are left alone. A task that is replaced meanwhile by a
rollout, a drain or the loss of its machine is not restarted again. If a restarted task
fails or does not become healthy, the restart stops, and muster status shows that. A
later request for the same job replaces the one in progress; --cancel ends it. A
suspended job is not restarted.

The command returns at once unless --wait is given. muster status, why and events show
who requested it, when and why. Requires the role operator.`,
		Example: `  muster restart search/web --reason "new certificate" && muster wait search/web
  muster restart search/web/2 --reason "it hangs" --wait
  muster restart search/web --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			job, _, err := parseWhat(args[0])
			if err == nil {
				err = r.check(args[0])
			}
			if err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			r.name, r.job, r.json = args[0], job, out.value == "json"
			if r.cancel {
				return r.ends(cmd.Context(), cl)
			}
			return r.begins(cmd.Context(), cl)
		},
	}
	m.add(c)
	out = addOutput(c, "text", "json")
	c.Flags().StringVar(&r.reason, "reason", "", "reason, on one line, shown in status and events; required")
	c.Flags().BoolVar(&r.cancel, "cancel", false, "cancel the restart in progress")
	c.Flags().BoolVar(&r.wait, "wait", false, "wait until all tasks are restarted and healthy")
	c.Flags().DurationVar(&r.timeout, "timeout", 10*time.Minute, "how long to wait with --wait")
	return c
}

// restartCommand is what muster restart was asked for.
type restartCommand struct {
	std          stdio
	name, job    string // of the task or the job, and of the job
	reason       string
	cancel, wait bool
	timeout      time.Duration
	json         bool
}

// check errs if nothing could come of what the flags say.
func (r *restartCommand) check(name string) error {
	switch {
	case r.cancel && (r.reason != "" || r.wait):
		return invalid("such as muster restart "+name+" --cancel", "--cancel takes neither --reason nor --wait")
	case r.cancel:
		return nil
	case r.timeout <= 0:
		return invalid("such as --timeout 5m", "--timeout %s: want more than 0", r.timeout)
	}
	if err := schema.CheckReason(r.reason); err != nil {
		return invalid("give a reason on one line: --reason TEXT", "muster restart %s: %w", name, err)
	}
	return nil
}

// begins asks for the restart.
func (r *restartCommand) begins(ctx context.Context, cl *client.Client) error {
	answer, err := cl.Restart(ctx, r.name, r.reason)
	if err != nil {
		return err
	}
	x := answer.Now
	switch {
	case r.json:
		if err := printJSON(r.std.out, answer); err != nil {
			return err
		}
	case x == nil:
		screen.Printf(r.std.out, "nothing of %s runs: there is nothing to restart\n", r.name)
	default:
		screen.Printf(r.std.out, "restarting %s of %s, at most %d at once\n", schema.Count(x.Tasks, "task"), r.job, min(x.Tasks, answer.AtOnce))
		for i := range answer.Was {
			screen.Printf(r.std.out, "it replaces the %s\n", &answer.Was[i])
		}
		if !r.wait {
			screen.Printf(r.std.out, "muster wait %s waits for it; muster restart %s --cancel cancels it\n", r.job, r.name)
		}
	}
	if x == nil || !r.wait {
		return nil
	}
	return r.waits(ctx, cl, x)
}

// ends cancels it.
func (r *restartCommand) ends(ctx context.Context, cl *client.Client) error {
	answer, err := cl.CancelRestart(ctx, r.name)
	if err != nil {
		return err
	}
	if r.json {
		return printJSON(r.std.out, answer)
	}
	if len(answer.Was) == 0 {
		err = screen.Fprintf(r.std.out, "%s is not being restarted\n", r.name)
		return err
	}
	for i := range answer.Was {
		screen.Printf(r.std.out, "%s: cancelled; it was a %s\n", answer.Was[i].Name, &answer.Was[i])
	}
	return nil
}

// waits waits until a restart is over, and errs unless all its tasks were restarted.
func (r *restartCommand) waits(ctx context.Context, cl *client.Client, x *schema.RestartRequest) error {
	waiting, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	last := fmt.Sprintf("no answer from the master within %s", r.timeout)
	for s, err := range cl.StatusChanges(waiting, client.StatusQuery{Group: status.Group{Name: r.job}, Short: true, Most: 1}, patient(r.std)) {
		if err != nil {
			return err
		}
		is := restartIn(s, x)
		switch {
		case is == nil && beforeRestart(s, x):
			return &failure{code: exitDiffers, err: fmt.Errorf("%s: the restart was ended before all tasks were restarted", r.name), hint: "muster events --kind restart shows by whom"}
		case is == nil:
			if !r.json {
				screen.Printf(r.std.out, "restarted %s of %s\n", schema.Count(x.Tasks, "task"), r.job)
			}
			return nil
		case is.Failed != "":
			return &failure{code: exitDiffers, err: fmt.Errorf("%s: %s", r.name, is.Message), hint: fmt.Sprintf("muster why %s shows more; restart it again when that is fixed, or %s", r.job, is.Next)}
		}
		last = is.Message
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &failure{code: exitDiffers, err: fmt.Errorf("%s: %s", r.name, last), hint: "it continues: muster wait " + r.job + " waits for it"}
}

// restartIn returns what a status says of a restart, nil if it is over.
func restartIn(s *status.Status, x *schema.RestartRequest) *status.RestartStatus {
	for i := range s.Jobs {
		for k := range s.Jobs[i].Restarting {
			if is := &s.Jobs[i].Restarting[k]; is.Name == x.Name && is.After == x.After {
				return is
			}
		}
	}
	return nil
}

// beforeRestart reports whether a task runs that the restart was to stop.
func beforeRestart(s *status.Status, x *schema.RestartRequest) bool {
	isOfJob := slices.ContainsFunc(s.Jobs, func(j status.JobStatus) bool { return j.Name == x.Name })
	return slices.ContainsFunc(s.Tasks, func(t status.TaskStatus) bool {
		return (isOfJob || t.Name == x.Name) && t.Machine != "" && t.Generation <= x.After
	})
}
