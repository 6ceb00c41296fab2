package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// maxLabels is how many labels a machine may be given.
const maxLabels = 64

// maxLine is the longest line of a labels or devices file, in bytes.
const maxLine = 4096

// labels are what a machine was given, by key.
type labels map[string]string

// String is empty: the flag has no default to show.
func (*labels) String() string { return "" }

// Type returns what stands for the value in the help.
func (*labels) Type() string { return "KEY=VALUE" }

// Set parses KEY=VALUE.
func (l *labels) Set(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("%q: want KEY=VALUE, such as rack=r1", s)
	}
	if err := schema.CheckLabel(key, value); err != nil {
		return err
	}
	if _, again := (*l)[key]; again {
		return fmt.Errorf("label %q is given twice", key)
	}
	if len(*l) == maxLabels {
		return fmt.Errorf("more than %d labels", maxLabels)
	}
	if *l == nil {
		*l = labels{}
	}
	(*l)[key] = value
	return nil
}

// devices are the groups that a machine was given, in the order in which their
// indices count.
type devices []schema.DeviceGroup

// String is empty: the flag has no default to show.
func (*devices) String() string { return "" }

// Type returns what stands for the value in the help.
func (*devices) Type() string { return "KIND[:MODEL]=COUNT" }

// Set parses KIND[:MODEL]=COUNT.
func (d *devices) Set(s string) error {
	what, number, ok := strings.Cut(s, "=")
	count, err := strconv.Atoi(number)
	if !ok || err != nil {
		return fmt.Errorf("%q: want KIND=COUNT or KIND:MODEL=COUNT, such as gpu:T4=2", s)
	}
	g := schema.DeviceGroup{Count: count}
	g.Kind, g.Model, _ = strings.Cut(what, ":")
	next := append(slices.Clone(*d), g)
	if err := schema.CheckDevices(next); err != nil {
		return err
	}
	*d = next
	return nil
}

// given puts the labels and devices that were typed, or stand in files, into
// what was found of the machine.
func (f *flags) given(info *schema.MachineInfo) error {
	if err := fromFile("--labels-file", f.labelsFile, &f.labels); err != nil {
		return err
	}
	if err := fromFile("--devices-file", f.devicesFile, &f.devices); err != nil {
		return err
	}
	attributes := maps.Clone(info.Attributes)
	for _, key := range slices.Sorted(maps.Keys(f.labels)) {
		if _, taken := attributes[key]; taken || key == "machine" {
			return usageError{fmt.Errorf("label %q: the agent finds that out itself", key), "choose another key"}
		}
		attributes[key] = f.labels[key]
	}
	info.Attributes, info.Devices = attributes, f.devices
	return nil
}

// setter takes one line of a file as it takes a flag's value.
type setter interface{ Set(s string) error }

// fromFile reads values from a file, one a line. Empty lines and those that
// begin with # are none.
func fromFile(flag, path string, to setter) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", flag, err), ""}
	}
	defer func() { _ = file.Close() }() // it was only read
	scanner := bufio.NewScanner(io.LimitReader(file, maxLine*(maxLabels+schema.MaxDeviceGroups)))
	scanner.Buffer(nil, maxLine)
	for line := 1; scanner.Scan(); line++ {
		s := strings.TrimSpace(scanner.Text())
		if s == "" || s[0] == '#' {
			continue
		}
		if err := to.Set(s); err != nil {
			return usageError{fmt.Errorf("%s: %s:%d: %w", flag, path, line, err), ""}
		}
	}
	err = scanner.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("a line has more than %d bytes", maxLine)
	}
	if err != nil {
		return usageError{fmt.Errorf("%s: %s: %w", flag, path, err), ""}
	}
	return nil
}
