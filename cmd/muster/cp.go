package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/archive"
)

func newCp(std stdio) *cobra.Command {
	var m masterFlag
	c := &cobra.Command{
		Use:   "cp SOURCE USER/JOB/INDEX:PATH | USER/JOB/INDEX:SOURCE PATH",
		Short: "copy files into a task or out of it",
		Long: `Copy a file, or a directory with all that is below it, into a running task or out of it.
PATH of the task is one that the task sees, from its working directory on if it does not
begin with a slash. If the destination is a directory that exists, the copy is made in it
under the name of the source; the content of a directory is copied with SOURCE/. instead.
With - in place of the path on this side, a tar archive is read from stdin, and unpacked in
the directory of the task, or written to stdout.

The copy is made inside the task, within its limits, as its user and with its rights, and
its image needs no program for it. The files belong to that user, and those that come out of
a task to you. Permissions and times are kept, but no set-user-ID, set-group-ID and sticky
bits, and your umask applies to what comes out. A source that is a symbolic link is
followed; other links are copied as links, and hard links as files of their own. Sockets,
fifos and devices are left out, each with a line on stderr. A file replaces another one when
it is complete.

Whatever the task sends, nothing is written outside of the destination. A link in what was
copied may lead anywhere all the same: look before you follow it. A task may also send more
than it seems to have.

The exit code is 3 if something could not be copied. It requires the rights of muster exec,
and is recorded and disabled with it.`,
		Example: `  muster cp app.conf search/web/0:/etc/app.conf
  muster cp search/web/0:logs .
  muster cp search/web/0:/var/lib/app/. backup
  muster cp search/web/0:/data - | gzip >data.tar.gz
  tar -c site | muster cp - search/web/0:/srv`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to, err := parsePlaces(args[0], args[1])
			if err != nil {
				return err
			}
			cl, err := m.client()
			if err != nil {
				return err
			}
			// A terminal is not the task's to control, whose file names these are.
			c := &copying{client: cl, std: stdio{in: std.in, out: std.out, err: &lockedWriter{w: tamed(std.err)}}}
			if to.task != "" {
				return c.into(cmd.Context(), from.path, to)
			}
			return c.outOf(cmd.Context(), from, to.path)
		},
	}
	m.add(c)
	return c
}

// place is what one operand names.
type place struct {
	task string // user/job/index; "": here
	path string
}

// parsePlaces errs unless one of the two is of a task.
func parsePlaces(source, destination string) (from, to place, err error) {
	if from, err = parsePlace(source); err == nil {
		to, err = parsePlace(destination)
	}
	switch {
	case err != nil:
		return from, to, err
	case from.task == "" && to.task == "":
		return from, to, invalid("such as muster cp notes search/web/0:/tmp", "muster cp: neither %q nor %q is of a task", source, destination)
	case from.task != "" && to.task != "":
		return from, to, invalid("copy out of one first, and then into the other", "muster cp: both are of a task")
	}
	return from, to, nil
}

// parsePlace takes a text up to its first colon for the name of a task, if it can be one.
func parsePlace(text string) (place, error) {
	name, file, colon := strings.Cut(text, ":")
	if !colon || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/") || !strings.Contains(name, "/") {
		return place{path: text}, nil
	}
	_, index, err := parseWhat(name)
	switch {
	case err != nil:
		return place{}, err
	case index < 0:
		return place{}, invalid("such as "+name+"/0:"+file, "%s is a job: which of its tasks?", name)
	case file == "":
		return place{}, invalid("such as "+text+". for its working directory", "%s names no file of the task", text)
	}
	return place{name, file}, nil
}

// piped is the path of stdin and stdout.
const piped = "-"

// copying is one run of muster cp.
type copying struct {
	client *client.Client
	std    stdio
	failed bool // something was reported
}

// report says on stderr what could not be copied.
func (c *copying) report(err error) {
	c.failed = c.failed || !errors.Is(err, archive.ErrLeftOut)
	screen.Printf(c.std.err, "%s\n", screen.Error(err))
}

// errNotAll is the error of a copy that has everything but what was reported.
var errNotAll = &failure{exitCouldNot, errors.New("not everything could be copied"), "the lines above say what is missing; the rest is there"}

// here is the error of what is wrong with the files on this side.
func here(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{exitCouldNot, err, "the source is a file or a directory, and the destination a directory that exists, or a new name in one"}
}

// into copies what is at from here.
func (c *copying) into(ctx context.Context, from string, to place) error {
	request := &schema.ExecCopy{Direction: schema.CopyTar, Path: to.path}
	if from != piped {
		info, err := os.Stat(from)
		if err == nil {
			request.Direction = schema.CopyIn
			request.Name, err = nameOf(from, info)
		}
		if err != nil {
			return here(err)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		var err error
		if from == piped {
			err = fromTar(w, c.std.in, c.report)
		} else {
			err = archive.Pack(w, from, c.report)
		}
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			cancel(here(err))
		}
		packed <- err
		_ = w.CloseWithError(err)
	}()
	err := c.run(ctx, client.ExecRun{Task: to.task, Request: schema.ExecRequest{Copy: request}, In: r, Out: io.Discard})
	_ = r.CloseWithError(io.ErrClosedPipe)
	if err != nil {
		return err // stdin may be read still
	}
	if err := <-packed; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return here(err)
	}
	if c.failed {
		return errNotAll
	}
	return nil
}

// nameOf returns what is copied is called: "" for the content of a directory.
func nameOf(file string, info fs.FileInfo) (string, error) {
	if info.IsDir() && (strings.HasSuffix(file, "/.") || file == ".") {
		return "", nil
	}
	whole, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if base := filepath.Base(whole); base != "/" {
		return base, nil
	}
	return "", nil
}

// outOf copies what is at from in its task.
func (c *copying) outOf(ctx context.Context, from place, to string) error {
	if to == piped && onTerminal(c.std.out) {
		return invalid("redirect it, or pass it on, as to tar -t", "muster cp: stdout is a terminal, which takes no archive")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	name := path.Base(path.Clean(from.path))
	if strings.HasSuffix(from.path, "/.") || name == "." || name == ".." || name == "/" {
		name = ""
	}
	r, w := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		var err error
		if to == piped {
			err = toTar(c.std.out, r, name)
		} else {
			mask := unix.Umask(0)
			unix.Umask(mask)
			err = archive.Unpack(r, archive.Target{Path: to, Name: name, Mask: fs.FileMode(mask)})
		}
		if err != nil {
			err = here(err)
			cancel(err)
		}
		unpacked <- err
		_ = r.CloseWithError(err)
	}()
	err := c.run(ctx, client.ExecRun{Task: from.task, Request: schema.ExecRequest{Copy: &schema.ExecCopy{Direction: schema.CopyOut, Path: from.path}}, Out: w})
	_ = w.CloseWithError(err)
	if made := <-unpacked; err == nil {
		return made
	}
	return err
}

// run runs the other end, in the task, to its end.
func (c *copying) run(ctx context.Context, run client.ExecRun) error {
	said := &lastLine{out: c.std.err}
	run.Err = said
	exit, err := c.client.RunExec(ctx, run)
	why := said.end(err == nil && exit.Code == archive.NotCopied)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case exit.Signal != "":
		return fmt.Errorf("what copies in the task was ended by %s", exit.Signal)
	case exit.Code < 0:
		return fmt.Errorf("how the copy in the task ended is not known: %s", cmp.Or(exit.Message, "nobody saw it"))
	case exit.Code == archive.CopiedInPart:
		return errNotAll
	case exit.Code > 0:
		return &failure{exitCouldNot, fmt.Errorf("in %s: %s", run.Task, cmp.Or(why, exit.Message, "the copy has failed")), "paths of the task are those that it sees, from its working directory on, and its rights are those of its user"}
	}
	return nil
}

// lastLine writes lines to out, but the last.
type lastLine struct {
	out  io.Writer
	rest []byte
}

func (l *lastLine) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	at := bytes.LastIndexByte(bytes.TrimSuffix(l.rest, []byte("\n")), '\n') + 1
	if at == 0 && len(l.rest) > maxLogLine {
		at = len(l.rest)
	}
	if _, err := l.out.Write(l.rest[:at]); err != nil {
		return 0, err
	}
	l.rest = append(l.rest[:0], l.rest[at:]...)
	return len(p), nil
}

// end returns the last line if it is asked for, and writes it if not.
func (l *lastLine) end(asked bool) string {
	if !asked {
		_, _ = l.out.Write(l.rest)
		return ""
	}
	line := string(bytes.TrimSuffix(l.rest, []byte("\n")))
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(line)
	}
	return line
}
