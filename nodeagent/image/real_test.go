package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/schema"
)

// tools skips tests where the programs are not that the store is compared with.
func tools(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s", name)
		}
	}
}

// execute runs a program to its end.
func execute(t testing.TB, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, b)
	}
}

// layout writes an OCI layout with one image, whose layers are of a media type, and returns its
// directory and digest.
func layout(t testing.TB, kind string, packed [][]byte, diffs []digest.Digest) (string, digest.Digest) {
	t.Helper()
	at := t.TempDir()
	put := func(b []byte, kind string) v1.Descriptor {
		d := digest.FromBytes(b)
		name := filepath.Join(at, "blobs/sha256", d.Encoded())
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return v1.Descriptor{MediaType: kind, Digest: d, Size: int64(len(b))}
	}
	document := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	c := v1.Image{Platform: v1.Platform{OS: "linux", Architecture: "amd64"}}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", diffs
	c.Config.Cmd = []string{"/bin/sh"}
	m := v1.Manifest{MediaType: typeManifest, Config: put(document(c), v1.MediaTypeImageConfig)}
	m.SchemaVersion = 2
	for _, b := range packed {
		m.Layers = append(m.Layers, put(b, kind))
	}
	d := put(document(m), typeManifest)
	d.Annotations = map[string]string{v1.AnnotationRefName: "it"}
	index := v1.Index{Manifests: []v1.Descriptor{d}}
	index.SchemaVersion = 2
	for name, b := range map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": document(index)} {
		if err := os.WriteFile(filepath.Join(at, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return at, d.Digest
}

// realFiles is how many further files TestReal has. Where many were removed lately, ext4 without a
// journal takes half a millisecond for each, in each form of the image.
var realFiles = flag.Int("image.files", 500, "files in a layer of TestReal")

// TestReal pulls an image that skopeo has pushed to docker-registry, in each of its forms, and compares
// what overlayfs shows of it with what umoci unpacks.
func TestReal(t *testing.T) {
	t.Parallel()
	tools(t, "docker-registry", "skopeo", "umoci")
	at := func(f file, seconds int64) file { f.ModTime = time.Unix(seconds, 0); return f }
	own := func(f file, mode int64, uid, gid int) file { f.Mode, f.Uid, f.Gid = mode, uid, gid; return f }
	with := func(f file, name, value string) file {
		f.PAXRecords = map[string]string{"SCHILY.xattr." + name: value}
		return f
	}
	device := func(kind byte, name string, major, minor int64) file {
		return file{tar.Header{Name: name, Typeflag: kind, Mode: 0o620, Devmajor: major, Devminor: minor}, ""}
	}
	capability := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // cap_net_bind_service+ep
	long := strings.Repeat("long/", 40) + strings.Repeat("n", 200)
	layers := [][]file{
		{
			own(dir("./"), 0o751, 3, 4), dir("bin"), own(reg("bin/sh", "shell"), 0o4755, 0, 0), with(reg("bin/ping", "ping"), "security.capability", capability),
			dir("usr"), dir("usr/lib"), symlink("lib", "usr/lib"), reg("usr/lib/libc", "c"), own(dir("tmp"), 0o1777, 0, 0),
			at(own(dir("home"), 0o750, 1000, 1001), 1_000_000_000), with(own(reg("home/a", ""), 0o600, 1000, 70000), "user.note", "y"),
			dir("dev"), device(tar.TypeChar, "dev/null", 1, 3), device(tar.TypeBlock, "dev/sda", 8, 0), device(tar.TypeFifo, "dev/fifo", 0, 0),
			reg("etc/implicit/file", "1"), hardlink("bin/ash", "bin/sh"), reg(long, "deep"), at(reg("ancient", ""), 1),
			dir("gone"), reg("gone/x", ""), reg("gone/y", ""), dir("opaque"), reg("opaque/old", ""), own(symlink("dangling", "/nowhere"), 0o777, 5, 6),
			at(file{tar.Header{Name: "nanoseconds", Typeflag: tar.TypeReg, Mode: 0o444, Format: tar.FormatPAX}, "n"}, 1_700_000_000),
			with(own(reg("bin/mount", "mount"), 0o4755, 0, 0), "security.capability", capability), with(reg("noted", "1"), "user.note", "a"), with(dir("marked"), "user.note", "d"),
			symlink("out", "../../../../../etc"), symlink("away", "/etc/passwd"), with(reg("etc/kept", ""), "user.note", "kept"),
		},
		{
			reg("home/implicit", ""), hardlink("bin/dash", "bin/sh"), reg(".wh.gone", ""), dir("gone"), reg("gone/z", ""),
			dir("opaque"), reg("opaque/.wh..wh..opq", ""), reg("opaque/new", ""), own(dir("bin"), 0o755, 0, 0), reg("etc/.wh.nothing", ""),
			reg("twice", "1"), reg("twice", "2"),
			// Another file has no attributes of the one before; one more name of it has all.
			reg("bin/mount", "mount, replaced"), with(reg("noted", "2"), "user.other", "b"), dir("marked"), hardlink("etc/again", "etc/kept"), hardlink("bin/ping6", "bin/ping"),
		},
		{reg("tmp/.wh.x", ""), reg("etc/implicit/.wh.file", ""), hardlink("sh", "bin/dash"), reg("usr/lib", "a file now")},
	}
	var many []file
	for i := range *realFiles {
		many = append(many, reg(fmt.Sprintf("many/%d/%d", i%10, i), fmt.Sprint(i)))
	}
	layers = append(layers, many)
	var packed, small [][]byte
	var diffs []digest.Digest
	for _, l := range layers {
		b := tarOf(t, l...)
		packed, small = append(packed, gzipped(b)), append(small, zstded(b))
		diffs = append(diffs, digest.FromBytes(b))
	}
	from, _ := layout(t, v1.MediaTypeImageLayerGzip, packed, diffs)
	fromSmall, _ := layout(t, v1.MediaTypeImageLayerZstd, small, diffs)
	host := imagetest.DockerRegistry(t)
	bundle := filepath.Join(t.TempDir(), "bundle")
	execute(t, "umoci", "unpack", "--image", from+":it", bundle)
	want := look(t, filepath.Join(bundle, "rootfs"))
	for form, how := range map[string]struct{ from, format string }{ // by what is in the manifest
		v1.MediaTypeImageLayerGzip: {from, "oci"}, "application/vnd.docker.image.rootfs.diff.tar.gzip": {from, "v2s2"}, v1.MediaTypeImageLayerZstd: {fromSmall, "oci"},
	} {
		to := "docker://" + host + "/team/app:" + digest.FromString(form).Encoded()
		name := filepath.Join(t.TempDir(), "digest")
		execute(t, "skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "--digestfile", name, "--format", how.format, "oci:"+how.from+":it", to)
		if raw, err := exec.Command("skopeo", "inspect", "--raw", "--tls-verify=false", to).Output(); err != nil || !strings.Contains(string(raw), form) {
			t.Fatalf("%s: pushed as %s, %v", form, raw, err)
		}
		sum, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := newStore(t, nil, func(c *Config) { c.Insecure = []string{host} })
		img, err := s.Ensure(t.Context(), schema.ImageRef{Registry: host, Name: "team/app", Digest: schema.Digest(sum)})
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		if d := cmp.Diff(want, look(t, mount(t, img))); d != "" {
			t.Errorf("%s: -umoci +ours:\n%s", form, d)
		}
	}
}

// large makes an image of 20 layers with 1 GiB in all, as a layout: files of 4 KiB to 1
// MiB, of which half of the content repeats.
func large(b *testing.B) (string, digest.Digest) {
	b.Helper()
	const layers, each = 20, 1 << 30 / 20
	r := rand.New(rand.NewPCG(1, 2))
	var packed [][]byte
	var diffs []digest.Digest
	chunk := make([]byte, 1<<20)
	for l := range layers {
		var out bytes.Buffer
		z, _ := gzip.NewWriterLevel(&out, gzip.DefaultCompression)
		sum := digest.SHA256.Digester()
		w := tar.NewWriter(io.MultiWriter(z, sum.Hash()))
		for n, i := 0, 0; n < each; i++ {
			size := 4096 << r.IntN(9)
			for j := 0; j < size; j += 8 {
				v := r.Uint64()
				if j/64%2 == 0 {
					v = uint64(i)
				}
				for k := range 8 {
					chunk[j+k] = byte(v >> (8 * k))
				}
			}
			if i%50 == 0 {
				_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("l%d", l), Typeflag: tar.TypeDir, Mode: 0o755})
				_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("l%d/d%d", l, i/50), Typeflag: tar.TypeDir, Mode: 0o755})
			}
			_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("l%d/d%d/f%d", l, i/50, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)})
			_, _ = w.Write(chunk[:size])
			n += size
		}
		_ = w.Close()
		_ = z.Close()
		packed = append(packed, bytes.Clone(out.Bytes()))
		diffs = append(diffs, sum.Digest())
	}
	return layout(b, v1.MediaTypeImageLayerGzip, packed, diffs)
}

// BenchmarkPull compares a pull of 1 GiB in 20 layers with skopeo and umoci. The image
// is on loopback and in the page cache.
func BenchmarkPull(b *testing.B) {
	tools(b, "docker-registry", "skopeo", "umoci")
	from, sum := large(b)
	host := imagetest.DockerRegistry(b)
	execute(b, "skopeo", "--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", "oci:"+from+":it", "docker://"+host+"/team/app:it")
	b.Run("skopeo-umoci", func(b *testing.B) {
		for b.Loop() {
			to := b.TempDir()
			execute(b, "skopeo", "--insecure-policy", "copy", "--quiet", "--src-tls-verify=false", "docker://"+host+"/team/app:it", "oci:"+to+"/copy:it")
			execute(b, "umoci", "unpack", "--image", to+"/copy:it", to+"/bundle")
		}
	})
	b.Run("ours", func(b *testing.B) {
		most := 0.0
		for b.Loop() {
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), childEnv+"="+filepath.Join(b.TempDir(), "images")+"|"+host+"/team/app@"+sum.String()+"|1")
			out, err := child.CombinedOutput()
			if err != nil {
				b.Fatalf("%v %s", err, out)
			}
			// As it is in the child: rusage has that of the process that started it.
			if m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(out); m != nil {
				kib, _ := strconv.ParseFloat(string(m[1]), 64)
				most = max(most, kib)
			}
		}
		b.ReportMetric(most/1024, "MiB-rss")
	})
}
