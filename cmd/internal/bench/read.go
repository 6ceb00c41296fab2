package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// read asks for what people and programs look at, one after the other.
func (c *cell) read(ctx context.Context, l *load) error {
	for _, r := range []struct {
		name string
		ask  func() (time.Duration, []byte, error)
	}{
		{"muster status", func() (time.Duration, []byte, error) { return c.command(ctx, "status") }},
		{"muster status JOB", func() (time.Duration, []byte, error) { return c.command(ctx, "status", editedJob) }},
		{"muster why JOB", func() (time.Duration, []byte, error) { return c.command(ctx, "why", editedJob) }},
		{"/v1/status", func() (time.Duration, []byte, error) { return c.master.get(ctx, "/v1/status") }},
		{"/v1/status?tasks=0", func() (time.Duration, []byte, error) { return c.master.get(ctx, "/v1/status?tasks=0") }},
		{"/v1/events?newest=1", func() (time.Duration, []byte, error) {
			return c.master.get(ctx, "/v1/events?newest=1&limit=100")
		}},
		{"/metrics", func() (time.Duration, []byte, error) { return c.master.get(ctx, "/metrics") }},
	} {
		var times []time.Duration
		size := 0
		for range reads {
			took, answer, err := r.ask()
			if err != nil {
				return err
			}
			times, size = append(times, took), len(answer)
		}
		l.row(r.name+", longest", "s", percentile(times, 100).Seconds())
		l.row(r.name+", size", "KiB", float64(size)/(1<<10))
	}
	return l.used()
}

// command runs a command that looks at the cell.
func (c *cell) command(ctx context.Context, args ...string) (took time.Duration, out []byte, err error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, c.cfg.Muster, args...) //nolint:gosec // as the callers say
	cmd.Env = append(os.Environ(), "MUSTER_MASTER=unix:"+filepath.Join(c.cfg.Dir, "api", "api.sock"))
	var said bytes.Buffer
	cmd.Stderr = &said
	if out, err = cmd.Output(); err != nil {
		err = fmt.Errorf("muster %s: %w: %.500s", strings.Join(args, " "), err, said.Bytes())
	}
	return time.Since(began), out, err
}

// converge waits until the cell has converged on the head of the repository.
func (c *cell) converge(ctx context.Context) error {
	head, err := c.repo.git(ctx, "rev-parse", branch)
	if err != nil {
		return err
	}
	_, _, err = c.command(ctx, "wait", "--commit", head, "--timeout", c.cfg.patience().String())
	return err
}
