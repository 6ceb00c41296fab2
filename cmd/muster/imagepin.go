package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/nodeagent/image"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

func newImagePin(std stdio) *cobra.Command {
	var check, missing bool
	var insecure []string
	var timeout time.Duration
	var out *outputFlag
	c := &cobra.Command{
		Use:   "pin [PATH...]",
		Short: "write into CUE files the digests that the tags of images stand for",
		Long: `Ask the registries what the tags of container images stand for now, and write it into
the CUE files that name them: docker.io/library/nginx:1.27 becomes
docker.io/library/nginx:1.27@sha256:…, and a digest that the tag no longer stands for is
replaced. Where an image is made for several platforms, the digest is that of all of
them. A PATH is a file, or a directory with all below it (default: the current one).
Nothing else in the files changes, and nothing is committed.

Images are the fields image of containers, as texts: one that is computed, as by
"\(registry)/web:1", is listed and left alone.

With --check nothing is written, and the exit code is 1 when a tag has no digest or
another one. With --missing only tags without a digest are asked for: images that have
one stay as they are.

Registries that want a user get what docker login or podman login has stored in
$DOCKER_CONFIG/config.json, or in ~/.docker/config.json.`,
		Example: "  muster image pin fleet && git -C fleet diff\n  muster image pin --missing teams/search/web.cue\n  muster image pin --check -o json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return invalid("such as --timeout 1m", "--timeout %s: want more than 0", timeout)
			}
			logins, err := readLogins()
			if err != nil {
				return err
			}
			p := &pinning{
				Images: []pinned{}, tags: image.NewTags(image.Config{InsecureLoopback: true, Insecure: insecure, Credentials: logins.Of}),
				check: check, missing: missing, timeout: timeout,
			}
			if err := p.run(cmd.Context(), args); err != nil {
				return err
			}
			if out.value == "json" {
				err = printJSON(std.out, p)
			} else {
				p.print(std)
			}
			if err != nil {
				return err
			}
			return p.verdict()
		},
	}
	c.Flags().BoolVar(&check, "check", false, "write nothing; exit with 1 when a tag has no digest, or another one")
	c.Flags().BoolVar(&missing, "missing", false, "ask only for tags that have no digest yet")
	c.Flags().StringArrayVar(&insecure, "insecure", nil, "registry, as HOST[:PORT], that may be used without TLS; those on a loopback address always may; may be repeated")
	c.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long registries may take, all together")
	out = addOutput(c, "text", "json")
	return c
}

// pinState says what was found of an image.
type pinState string

const (
	pinCurrent  pinState = "current"  // its digest is what the tag stands for
	pinMissing  pinState = "missing"  // it has no digest
	pinMoved    pinState = "moved"    // the tag stands for another digest now
	pinKept     pinState = "kept"     // it has a digest, and no tag or --missing
	pinComputed pinState = "computed" // there is no text to replace
	pinInvalid  pinState = "invalid"  // it names no image
	pinUnknown  pinState = "unknown"  // the registry did not say
)

// pinned is one image of one file.
type pinned struct {
	schema.Position

	Image string   `json:"image,omitempty"` // as it is written
	State pinState `json:"state"`
	Want  string   `json:"want,omitempty"` // as it should be, where that is known
	Error string   `json:"error,omitempty"`
	Hint  string   `json:"hint,omitempty"`

	ref     schema.ImageRef
	written compile.WrittenImage
}

// pinning is one run of muster image pin, and what it prints as JSON.
type pinning struct {
	Images  []pinned `json:"images"`
	Written []string `json:"written"` // files

	tags           *image.Tags
	check, missing bool
	timeout        time.Duration
}

// run finds the images of the files at paths, asks for their tags, and writes.
func (p *pinning) run(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := cueFiles(paths)
	if err != nil {
		return err
	}
	sources := map[string][]byte{}
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found, err := compile.Images(name, src)
		if err != nil {
			return &failure{code: exitInvalid, err: err, hint: "muster validate says more"}
		}
		for _, w := range found {
			p.Images = append(p.Images, p.look(w))
		}
		sources[name] = src
	}
	p.ask(ctx)
	p.Written = []string{}
	for _, name := range files {
		if err := p.write(name, sources[name]); err != nil {
			return err
		}
	}
	return nil
}

// cueFiles returns the CUE files at paths and below, without hidden directories, each
// once.
func cueFiles(paths []string) (files []string, err error) {
	seen := map[string]bool{}
	for _, at := range paths {
		root, err := filepath.EvalSymlinks(at) // a file is replaced, not the link to it
		if err != nil {
			return nil, &failure{code: exitInvalid, err: err, hint: "name a file, or a directory, of the config repository"}
		}
		err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			hidden := name != root && strings.HasPrefix(d.Name(), ".")
			switch {
			case err != nil:
				return err
			case d.IsDir() && (hidden || d.Name() == "cue.mod"):
				return fs.SkipDir
			case d.Type().IsRegular() && !hidden && strings.HasSuffix(name, ".cue"):
				if !seen[name] {
					files = append(files, name)
				}
				seen[name] = true
			case name == root && !d.IsDir():
				return invalid("images are named in files whose names end in .cue", "%s is not a CUE file", at)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// look says of an image what no registry needs to be asked for.
func (p *pinning) look(w compile.WrittenImage) pinned {
	out := pinned{Position: w.Position, Image: w.Text, written: w}
	if w.Computed {
		out.State = pinComputed
		return out
	}
	ref, err := schema.ParseImageTag(w.Text)
	if err == nil && ref.Tag == "" && ref.Digest == "" {
		_, err = schema.ParseImageRef(w.Text)
	}
	out.ref = ref
	switch {
	case err != nil:
		out.State = pinInvalid
		out.Error, out.Hint = schema.HintOf(err)
	case ref.Digest != "" && (ref.Tag == "" || p.missing):
		out.State = pinKept
	}
	return out
}

// ask asks the registries for the tags of all images without a state, each once.
func (p *pinning) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var refs []schema.ImageRef
	for i := range p.Images {
		if img := &p.Images[i]; img.State == "" {
			refs = append(refs, img.ref)
		}
	}
	answers := askTags(ctx, p.tags, refs)
	for i := range p.Images {
		if img := &p.Images[i]; img.State == "" {
			a := answers[img.ref.Tagged()]
			img.settle(a.digest, a.err)
		}
	}
}

// settle takes what the registry said of an image's tag.
func (img *pinned) settle(is schema.Digest, err error) {
	if err != nil {
		img.State, img.Error = pinUnknown, fmt.Sprintf("%s: %v", img.ref.Tagged(), err)
		return
	}
	was := img.ref.Digest
	img.ref.Digest = is
	img.Want = img.ref.String()
	switch was {
	case "":
		img.State = pinMissing
	case is:
		img.State = pinCurrent
	default:
		img.State = pinMoved
	}
}

// differs reports whether the image is to be replaced.
func (img *pinned) differs() bool { return img.State == pinMissing || img.State == pinMoved }

// write writes the digests into one file.
func (p *pinning) write(name string, src []byte) error {
	with := map[compile.WrittenImage]string{}
	for i := range p.Images {
		if img := &p.Images[i]; img.Path == name && img.differs() {
			with[img.written] = img.Want
		}
	}
	if p.check || len(with) == 0 {
		return nil
	}
	if err := writeChange(name, compile.Change{Old: src, New: compile.ReplaceImages(src, with)}); err != nil {
		return err
	}
	p.Written = append(p.Written, name)
	return nil
}

// print writes what was found for people: what differs, and what is wrong.
func (p *pinning) print(std stdio) {
	count := map[pinState]int{}
	for i := range p.Images {
		img := &p.Images[i]
		count[img.State]++
		switch img.State {
		case pinMissing:
			screen.Printf(std.out, "%s: %s is %s\n", img.Position, img.Image, img.ref.Digest)
		case pinMoved:
			screen.Printf(std.out, "%s: %s is now %s\n", img.Position, img.Image, img.ref.Digest)
		case pinComputed:
			screen.Printf(std.out, "%s: is computed, and left alone\n", img.Position)
		case pinInvalid, pinUnknown:
			screen.Printf(std.out, "%s: error: %s\n", img.Position, img.Error)
			if img.Hint != "" {
				screen.Printf(std.out, "  hint: %s\n", img.Hint)
			}
		default:
		}
	}
	verb := "pinned"
	if p.check {
		verb = "to pin"
	}
	screen.Printf(std.out, "%s %s, %d as they should be\n", schema.Count(count[pinMissing]+count[pinMoved], "image"), verb, count[pinCurrent]+count[pinKept])
}

// verdict returns the error that is the exit code.
func (p *pinning) verdict() error {
	code := exitOK
	for i := range p.Images {
		switch img := &p.Images[i]; {
		case img.State == pinInvalid:
			return &failure{code: exitInvalid}
		case img.State == pinUnknown:
			code = exitCouldNot
		case img.differs() && p.check && code == exitOK:
			code = exitDiffers
		}
	}
	if code == exitOK {
		return nil
	}
	return &failure{code: code}
}

// readLogins reads the file that docker login writes; none if there is no such file.
func readLogins() (*image.Logins, error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if home, err := os.UserHomeDir(); dir == "" && err == nil {
		dir = filepath.Join(home, ".docker")
	}
	l, err := image.ReadLogins(filepath.Join(dir, "config.json"))
	switch {
	case dir == "" || errors.Is(err, fs.ErrNotExist):
		return &image.Logins{}, nil
	case err != nil:
		return nil, &failure{code: exitInvalid, err: err, hint: "DOCKER_CONFIG names another directory than ~/.docker"}
	}
	return l, nil
}
