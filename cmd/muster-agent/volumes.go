package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// volumes is a flag's value: directories of the machine, by name.
type volumes map[string]runtime.Volume

// readOnlyMark ends a volume that no task may write to.
const readOnlyMark = ":ro"

// String implements pflag.Value.
func (v *volumes) String() string {
	out := make([]string, 0, len(*v))
	for _, name := range slices.Sorted(maps.Keys(*v)) {
		of := (*v)[name]
		text := name + "=" + of.Path
		if of.ReadOnly {
			text += readOnlyMark
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// Type returns what stands for the value in the help.
func (*volumes) Type() string { return "NAME=PATH" }

// Set parses one directory.
func (v *volumes) Set(s string) error {
	name, dir, ok := strings.Cut(s, "=")
	dir, readOnly := strings.CutSuffix(dir, readOnlyMark)
	switch {
	case !ok:
		return errors.New("want NAME=PATH or NAME=PATH:ro")
	case !path.IsAbs(dir) || path.Clean(dir) == "/":
		return fmt.Errorf("want an absolute path below /, not %q", dir)
	}
	if err := schema.CheckName(name); err != nil {
		return err
	}
	if _, twice := (*v)[name]; twice {
		return fmt.Errorf("there are two volumes called %s", name)
	}
	if *v == nil {
		*v = volumes{}
	}
	(*v)[name] = runtime.Volume{Path: dir, ReadOnly: readOnly}
	return nil
}
