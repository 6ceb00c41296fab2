package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// Image is an image in memory.
type Image struct {
	Digest   digest.Digest // of its manifest
	Manifest []byte
	Blobs    map[digest.Digest][]byte // its configuration and layers
}

// Settings are what an image says of how it is run.
type Settings struct {
	Entrypoint, Command, Env []string
}

// Layer is a layer with files, compressed.
type Layer struct {
	diff   digest.Digest // of what is not compressed
	packed []byte
}

// Busybox makes the layer of the busybox of this machine, with a name for each of its
// programs in /bin, the users root and ada (1000), and further files, which may be
// executed. The test is skipped where there is no busybox.
func Busybox(t testing.TB, files map[string]string) Layer {
	t.Helper()
	program, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("NOT TESTED: needs busybox: %v", err)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.CommandContext(t.Context(), program, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"bin/busybox": string(b), "etc/passwd": "root:x:0:0::/root:/bin/sh\nada:x:1000:1001::/home/ada:/bin/sh\n", "etc/group": "root:x:0:\nada:x:1001:\n",
	}
	maps.Copy(all, files)
	var out, packed bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(h tar.Header, content string) {
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "etc", "root"} {
		add(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755}, "")
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		add(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, all[name])
	}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, "")
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(out.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return Layer{diff: digest.FromBytes(out.Bytes()), packed: packed.Bytes()}
}

// Random makes a layer of one file with so many bytes that cannot be compressed, other ones for each
// seed.
func Random(t testing.TB, seed uint64, size int) Layer {
	t.Helper()
	content := make([]byte, size)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	return ofFile(t, fmt.Sprint("file", seed), content)
}

// Repeated is Random for bytes that repeat each KiB, of which a file system that compresses keeps
// little; the layer itself is not compressed.
func Repeated(t testing.TB, seed uint64, size int) Layer {
	t.Helper()
	block := make([]byte, 1<<10)
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not a secret
	for i := range block {
		block[i] = byte(random.Uint32())
	}
	return ofFile(t, fmt.Sprint("file", seed), bytes.Repeat(block, size/len(block)))
}

// ofFile makes a layer of one file.
func ofFile(t testing.TB, name string, content []byte) Layer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return Layer{diff: digest.FromBytes(out.Bytes()), packed: out.Bytes()} // how it is packed is seen in its bytes
}

// Of makes an image of one layer. Images with other settings are others, and share it.
func Of(t testing.TB, l Layer, s Settings) Image {
	t.Helper()
	return OfLayers(t, s, l)
}

// OfLayers makes an image of layers, lowest first.
func OfLayers(t testing.TB, s Settings, layers ...Layer) Image {
	t.Helper()
	i := Image{Blobs: map[digest.Digest][]byte{}}
	put := func(kind string, b []byte) v1.Descriptor {
		d := digest.FromBytes(b)
		i.Blobs[d] = b
		return v1.Descriptor{MediaType: kind, Digest: d, Size: int64(len(b))}
	}
	c := v1.Image{Platform: v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}, Config: v1.ImageConfig{Entrypoint: s.Entrypoint, Cmd: s.Command, Env: s.Env}}
	c.RootFS.Type = "layers"
	var all []v1.Descriptor
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.diff)
		all = append(all, put(v1.MediaTypeImageLayerGzip, l.packed))
	}
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	m := v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: put(v1.MediaTypeImageConfig, config), Layers: all,
	}
	if i.Manifest, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	i.Digest = digest.FromBytes(i.Manifest)
	return i
}
