package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/thread"
)

const (
	// endWithin is how long the output of a plugin that was killed is waited for.
	endWithin = time.Second
	// mostOutput is what is read of what a plugin prints, in bytes; results have some hundred.
	mostOutput = 1 << 20
	// mostSaid is how much of it an error quotes, in bytes.
	mostSaid = 300
	// busyTries is how often a program is tried that is just being written, each busyPause after the other.
	busyTries = 5
	busyPause = 200 * time.Millisecond
	// lockPause is the time between two looks at whether a lock is free.
	lockPause = 20 * time.Millisecond
	// mostPlugins is how many plugins of a machine are reported.
	mostPlugins = 64
)

// Plugins returns the names of the programs in directories, of those that can be plugins, sorted.
func Plugins(dirs []string) []string {
	var out []string
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // there are none
		}
		for _, f := range files {
			info, err := os.Stat(filepath.Join(dir, f.Name()))
			if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && schema.IsCNIType(f.Name()) {
				out = append(out, f.Name())
			}
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), mostPlugins)]
}

// program runs plugins, each with a lock that it inherits, as an invoke.Exec.
type program struct {
	version.PluginDecoder
	lock   *os.File
	within time.Duration // after which ctx ends, for errors
}

// FindInPath returns the path of a plugin.
func (*program) FindInPath(plugin string, dirs []string) (string, error) {
	path, err := invoke.FindInPath(plugin, dirs)
	if err != nil {
		return "", fmt.Errorf("there is no %s in %s", plugin, strings.Join(dirs, ", "))
	}
	return path, nil
}

// output is the beginning of what a program prints.
type output struct {
	bytes.Buffer
	more bool
}

// Write takes all, and keeps what there is room for.
func (o *output) Write(b []byte) (int, error) {
	room := mostOutput - o.Len()
	if len(b) > room {
		o.more = true
	}
	_, err := o.Buffer.Write(b[:min(len(b), room)])
	return len(b), err
}

// said returns the beginning as a part of an error.
func (o *output) said() string {
	b := bytes.TrimSpace(o.Bytes())
	return schema.Printable(string(b[:min(len(b), mostSaid)]))
}

// ExecPlugin runs a plugin, which is killed with all that it has started when ctx ends, and when this process does.
func (p *program) ExecPlugin(ctx context.Context, path string, input []byte, environ []string) ([]byte, error) {
	for try := 0; ; try++ {
		var out, errs output
		err := thread.Run(func() error { // which lives as long as the program: it is killed with its parent thread
			cmd := exec.CommandContext(ctx, path)
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(input), &out, &errs
			cmd.ExtraFiles = []*os.File{p.lock}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			cmd.WaitDelay = endWithin
			return cmd.Run()
		})
		if errors.Is(err, syscall.ETXTBSY) && try < busyTries {
			time.Sleep(busyPause)
			continue
		}
		if err := p.outcome(ctx, err, &out, &errs); err != nil {
			return nil, err
		}
		if slices.Contains(environ, "CNI_COMMAND=ADD") && !isObject(out.Bytes()) {
			return nil, fmt.Errorf("it printed no result of CNI: %q", out.said())
		}
		return out.Bytes(), nil
	}
}

func isObject(b []byte) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(b, &o) == nil && o != nil
}

// outcome returns why a run of a plugin has failed; nil if it has not.
func (p *program) outcome(ctx context.Context, err error, out, errs *output) error {
	var said types.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("it did not end within %s, and was killed", p.within)
	case err == nil && out.more:
		return fmt.Errorf("it printed more than %d bytes", mostOutput)
	case err == nil:
		return nil
	case isObject(out.Bytes()) && json.Unmarshal(out.Bytes(), &said) == nil && said.Msg != "":
		return errors.New(cut(schema.Printable(strings.TrimSuffix(said.Msg+"; "+said.Details, "; "))))
	case out.said() != "":
		return fmt.Errorf("%w: it printed %q", err, out.said())
	case errs.said() != "":
		return fmt.Errorf("%w: %q", err, errs.said())
	}
	return fmt.Errorf("%w, and it said nothing", err)
}

// cut returns the beginning of a text that plugins may have made long.
func cut(s string) string {
	if len(s) > mostSaid {
		return strings.ToValidUTF8(s[:mostSaid], "") + "…"
	}
	return s
}

// locked returns the file at path, which is made, once nobody else has it locked: neither another call nor a program that
// one has left behind. The lock ends when the file and all that programs have of it are closed.
func locked(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(errors.New("a plugin that was called before still runs"), f.Close())
		case <-time.After(lockPause):
		}
	}
}

// removed removes a file, if it is there.
func removed(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
