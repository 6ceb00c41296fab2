package image

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mount shows an image as overlayfs does, with an upper directory that has the
// attributes of its root.
func mount(t *testing.T, img Image) string {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"upper", "work", "root", "empty"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	upper := filepath.Join(base, "upper")
	if err := errors.Join(os.Chown(upper, int(img.Root.UID), int(img.Root.GID)), unix.Chmod(upper, img.Root.Mode)); err != nil {
		t.Fatal(err)
	}
	lower := slices.Clone(img.Layers)
	slices.Reverse(lower)
	lower = append(lower, filepath.Join(base, "empty"))
	at := filepath.Join(base, "root")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", strings.Join(lower, ":"), upper, filepath.Join(base, "work"))
	// Private to this test's process: unmounted with it in any case.
	err := unix.Mount("overlay", at, "overlay", 0, options)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		t.Skipf("needs a kernel that mounts an overlay on the temporary directory: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}

// began is a time before any test that is after all times in tars.
const began = 1_750_000_000

// look returns what is below a directory: for each path its type, mode, owner, size,
// time, extended attributes and content, and which names are one file.
func look(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	inodes := map[uint64]string{}
	err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return fmt.Errorf("lstat %s: %w", p, err)
		}
		line := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid)
		// A directory without an entry in any tar is as old as what unpacked it, or as the epoch.
		if rel != "." && st.Mtim.Sec != 0 && st.Mtim.Sec < began {
			line += fmt.Sprintf(" at %d.%d", st.Mtim.Sec, st.Mtim.Nsec)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %x", len(b), sha256.Sum256(b))
		case unix.S_IFLNK:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		case unix.S_IFCHR, unix.S_IFBLK:
			line += fmt.Sprintf(" %d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1 {
			if first, ok := inodes[st.Ino]; ok {
				line += " is " + first
			} else {
				inodes[st.Ino] = rel
			}
		}
		names := make([]byte, 4096)
		n, err := unix.Llistxattr(p, names)
		if err != nil {
			return fmt.Errorf("llistxattr %s: %w", p, err)
		}
		all := strings.Split(strings.Trim(string(names[:n]), "\x00"), "\x00")
		slices.Sort(all)
		for _, name := range all {
			if name == "" || strings.HasPrefix(name, "trusted.overlay.") {
				continue
			}
			value := make([]byte, 4096)
			n, err := unix.Lgetxattr(p, name, value)
			if err != nil {
				return fmt.Errorf("lgetxattr %s %s: %w", p, name, err)
			}
			line += fmt.Sprintf(" %s=%x", name, value[:n])
		}
		out[rel] = line
		return nil
	})
	if err != nil {
		t.Fatalf("below %s: %#v", root, err)
	}
	return out
}

// names returns the names below a directory, sorted.
func names(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	for p := range look(t, root) {
		if p != "." {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}
