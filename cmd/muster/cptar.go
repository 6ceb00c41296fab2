package main

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/musterhq/muster/schema/archive"
)

// Users see tar. A task's machine does not: its library wants one of C to find users by.

// fromTar makes an archive w of a tar archive r, and reports what it leaves out.
func fromTar(w io.Writer, r io.Reader, report func(error)) error {
	in, out := tar.NewReader(r), archive.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return badTar(err)
		}
		e := &archive.Entry{Name: h.Name, Link: h.Linkname, Mode: fs.FileMode(h.Mode) & fs.ModePerm, UID: h.Uid, GID: h.Gid, Time: h.ModTime}
		switch h.Typeflag {
		case tar.TypeReg, tar.TypeGNUSparse:
			e.Kind, e.Size, e.Link = archive.File, h.Size, ""
		case tar.TypeDir:
			e.Kind = archive.Directory
		case tar.TypeSymlink:
			e.Kind = archive.Link
		case tar.TypeLink:
			e.Kind = archive.HardLink
		default:
			report(fmt.Errorf("%.200q: %w: it is no file, directory or link", h.Name, archive.ErrLeftOut))
			continue
		}
		if !filepath.IsLocal(path.Clean(h.Name)) {
			return badTar(fmt.Errorf("the archive names %.200q, which is not below the directory that it is unpacked in", h.Name))
		}
		if err := out.Add(e); err != nil {
			return err
		}
		if err := copyContent(out, in); err != nil {
			return err
		}
	}
}

// copyContent copies the content of an entry of tar.
func copyContent(w io.Writer, in *tar.Reader) error {
	buffer := make([]byte, 32<<10)
	for {
		n, err := in.Read(buffer)
		if _, err := w.Write(buffer[:n]); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return badTar(err)
		}
	}
}

func badTar(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the archive ends in the middle")
	}
	return &failure{exitCouldNot, fmt.Errorf("stdin: %w", err), "want a tar archive that is not compressed, as tar -c writes it, with names that do not begin with a slash"}
}

// toTar makes a tar archive w of the archive r, below name in place of ".". What is in it is
// checked: whoever unpacks it may believe more than we do.
func toTar(w io.Writer, r io.Reader, name string) error {
	in, out := archive.NewReader(r), tar.NewWriter(w)
	for {
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		local := path.Clean(e.Name)
		if !filepath.IsLocal(local) {
			return fmt.Errorf("the archive names %.200q, which is not below what was copied", e.Name)
		}
		h := &tar.Header{
			Format: tar.FormatPAX, Name: path.Join(cmp.Or(name, "."), local),
			Mode: int64(e.Mode), Uid: e.UID, Gid: e.GID, ModTime: e.Time,
		}
		switch e.Kind {
		case archive.File:
			h.Typeflag, h.Size = tar.TypeReg, e.Size
		case archive.Directory:
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		case archive.Link:
			h.Typeflag, h.Linkname = tar.TypeSymlink, e.Link
		default:
			return fmt.Errorf("the archive has %.200q of kind %q: want files, directories and links", e.Name, byte(e.Kind))
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
