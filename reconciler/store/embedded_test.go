package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/musterhq/muster/reconciler/model"
)

// childEnv makes the test binary a master that writes to the directory named
// by it until it is killed.
const childEnv = "MUSTER_STORE_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := writeForever(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeForever prints each number once it is stored.
func writeForever(dir string) error {
	ctx := context.Background()
	s, err := OpenEmbedded(ctx, EmbeddedConfig{Dir: dir, Cell: "c", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := s.Campaign(ctx, "child"); err != nil {
		return err
	}
	for i := 0; ; i++ {
		n := strconv.Itoa(i)
		if err := s.Commit(ctx, []model.Write{put("a", n), put("b/"+n, n)}); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// testLog fails the test on warnings: etcd says nothing in normal work.
func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(complainer{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type complainer struct{ t *testing.T }

func (c complainer) Write(p []byte) (int, error) {
	// A slow machine, or disk, is no failure.
	if !bytes.Contains(p, []byte("took too long")) && !bytes.Contains(p, []byte("slow fdatasync")) {
		c.t.Errorf("etcd logs: %s", p)
	}
	return len(p), nil
}

func openEmbedded(t *testing.T, dir, cell string) (*Store, error) {
	t.Helper()
	s, err := OpenEmbedded(t.Context(), EmbeddedConfig{Dir: dir, Cell: cell, Log: testLog(t)})
	if err == nil {
		t.Cleanup(func() { closeStore(t, s) })
	}
	return s, err
}

// startChild runs a writing master on dir and returns after n documents.
func startChild(t *testing.T, dir string, n int) (child *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Process.Kill() // an error says that it has ended
		child.Wait()
	})
	lines = bufio.NewScanner(out)
	for range n {
		if !lines.Scan() {
			t.Fatalf("the child ended: %v %s", child.Wait(), &stderr)
		}
	}
	return child, lines
}

// A master killed with -9 in the middle of its writes loses none that it
// acknowledged and leaves no half of one; while it lives its directory is
// refused to others, in words that name it.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 3 {
		child, lines := startChild(t, dir, 50)
		_, err := openEmbedded(t, dir, "c")
		var locked *LockedError
		if !errors.As(err, &locked) || locked.PID != strconv.Itoa(child.Process.Pid) {
			t.Fatalf("open of a held directory: %v, want LockedError of process %d", err, child.Process.Pid)
		}
		if want := fmt.Sprintf("data directory %s is in use by process %d\nhint: ", dir, child.Process.Pid); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %q, want %q", err, want)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		last := 49 // the child's 50th
		for lines.Scan() {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		if err := child.Wait(); err == nil {
			t.Fatal("the child was not killed")
		}
		s, err := openEmbedded(t, dir, "c")
		if err != nil {
			t.Fatalf("open after kill -9: %v", err)
		}
		lead(t, s, "next")
		docs := load(t, s)
		stored, err := strconv.Atoi(string(docs["a"]))
		if err != nil || stored < last || stored > last+1 {
			t.Errorf("a is %q, %d was the last acknowledged", docs["a"], last)
		}
		if got := string(docs[fmt.Sprint("b/", stored)]); got != string(docs["a"]) {
			t.Errorf("half a transaction: a is %s, b/%d is %q", docs["a"], stored, got)
		}
		closeStore(t, s)
	}
}

// A directory of another cell is refused without a byte of it being changed.
func TestForeignDirectoryIsUntouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openEmbedded(t, dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	before := readAll(t, dir)
	_, err = openEmbedded(t, dir, "b")
	want := fmt.Sprintf("data directory %s belongs to cell \"a\", not \"b\"\nhint: ", dir)
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if diff := cmp.Diff(before, readAll(t, dir)); diff != "" {
		t.Errorf("the directory has changed:\n%s", diff)
	}
	// Without the file beside it, the store itself says whose it is.
	if err := os.Remove(filepath.Join(dir, identityFile)); err != nil {
		t.Fatal(err)
	}
	if _, err = openEmbedded(t, dir, "b"); err == nil || !strings.Contains(err.Error(), `belongs to cell "a", not "b"`) {
		t.Errorf("error %v", err)
	}
}

// readAll returns each file's modification time and size, and what is in it
// if it is small.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[path] = fmt.Sprint(info.Mode(), info.ModTime(), info.Size())
		if info.Mode().IsRegular() && info.Size() < 1<<20 {
			data, err := os.ReadFile(path)
			files[path] += string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Nobody can reach the embedded etcd: this process holds no socket at all
// while it runs.
func TestNoListener(t *testing.T) {
	s, err := openEmbedded(t, t.TempDir(), "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	commit(t, s, put("a", "1"))
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		link, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory's own, closed since
		}
		if err != nil {
			t.Fatal(err)
		}
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			t.Errorf("file descriptor %s is %s: %s", fd.Name(), link, socketLine(t, strings.TrimSuffix(inode, "]")))
		}
	}
	if out := socketFiles(t, s.be.(*etcdBackend).dir.path); len(out) > 0 {
		t.Errorf("sockets in the data directory: %v", out)
	}
}

// socketLine finds the inode in the socket tables.
func socketLine(t *testing.T, inode string) string {
	t.Helper()
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		data, err := os.ReadFile("/proc/self/net/" + table)
		if err != nil {
			continue // no such protocol in this kernel
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(" "+line, " "+inode+" ") {
				return table + " " + strings.TrimSpace(line)
			}
		}
	}
	return "in no table"
}

func socketFiles(t *testing.T, dir string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeSocket != 0 {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Damaged files are an error that names the directory, not an exit.
func TestDamagedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openEmbedded(t, dir, "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	for i := range 20 {
		commit(t, s, put("a", strconv.Itoa(i)))
	}
	closeStore(t, s)
	logs, err := filepath.Glob(filepath.Join(dir, "etcd", "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no write-ahead log: %v", err)
	}
	data, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("/muster/c/a"))
	if at < 0 {
		t.Fatal("the document is not in the log")
	}
	data[at]++
	if err := os.WriteFile(logs[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first failure must not leave the lock behind
		_, err = OpenEmbedded(t.Context(), EmbeddedConfig{Dir: dir, Cell: "c", Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "start etcd on "+dir) || !strings.Contains(err.Error(), "damaged") {
			t.Fatalf("open of damaged files: %v", err)
		}
	}
}

// What cannot be a data directory is refused in one line.
func TestBadDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openEmbedded(t, file, "c"); err == nil || !strings.Contains(err.Error(), "data directory "+file) {
		t.Errorf("open of a file: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, identityFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openEmbedded(t, dir, "c"); err == nil || !strings.Contains(err.Error(), "identity of its cell cannot be read") {
		t.Errorf("open with a torn identity: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(`{"cell":"c","format":9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openEmbedded(t, dir, "c"); err == nil || !strings.Contains(err.Error(), "newer release") {
		t.Errorf("open of a newer layout: %v", err)
	}
}

// A server that goes away by itself ends the term, without a Commit.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	s, err := openEmbedded(t, t.TempDir(), "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	s.be.(*etcdBackend).server.Server.Stop()
	<-s.Lost()
	if err := s.Commit(t.Context(), []model.Write{put("a", "1")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit: %v, want ErrNotLeader", err)
	}
}

// An embedded server that can write no more acknowledges nothing and keeps its
// locks: the term ends, and what is asked from then on says why and what to do.
func TestCollapse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openEmbedded(t, dir, "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	commit(t, s, put("a", "1"))
	be := s.be.(*etcdBackend)
	go func() { // etcd's own, which never returns
		be.server.Server.Backend().BatchTx().LockOutsideApply()
		err := &fs.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}
		be.end.OnWrite(&zapcore.CheckedEntry{Entry: zapcore.Entry{Message: "failed to commit tx"}}, []zapcore.Field{zap.Error(err)})
	}()
	<-s.Lost()
	if err := s.Commit(t.Context(), []model.Write{put("a", "2")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit: %v, want ErrNotLeader", err)
	}
	err = s.Campaign(t.Context(), "one")
	_, loadErr := s.Load(t.Context())
	_, defragErr := call(be.end, func() (string, error) { select {} })
	for what, err := range map[string]error{"Campaign": err, "Load": loadErr, "a call that never returns": defragErr} {
		want := "the store has failed in data directory " + dir + ": failed to commit tx: write db: no space left on device\nhint: make room in the file system mounted at /"
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrDown) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
}

// quiet drops what etcd says of faults that a test makes.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
