package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

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
func (*devices) Type() string { return "KIND[:MODEL]=COUNT[,KEY=VALUE]" }

// Set parses KIND[:MODEL]=COUNT[,KEY=VALUE]....
func (d *devices) Set(s string) error {
	what, rest, ok := strings.Cut(s, "=")
	parts := strings.Split(rest, ",")
	count, err := strconv.Atoi(parts[0])
	if !ok || err != nil {
		return fmt.Errorf("%q: want KIND=COUNT or KIND:MODEL=COUNT, such as gpu:T4=2, or with attributes gpu:A100=4,memory=80Gi,numa=0", s)
	}
	g := schema.DeviceGroup{Count: count}
	g.Kind, g.Model, _ = strings.Cut(what, ":")
	for _, p := range parts[1:] {
		key, value, ok := strings.Cut(p, "=")
		switch _, again := g.Attributes[key]; {
		case !ok:
			return fmt.Errorf("%q: attribute %q: want KEY=VALUE, such as memory=80Gi", s, p)
		case again:
			return fmt.Errorf("%q: attribute %s is given twice", s, key)
		case key == "model":
			return fmt.Errorf("%q: the model stands before the count: %s:%s=%d", s, g.Kind, value, count)
		case g.Attributes == nil:
			g.Attributes = map[string]string{}
		}
		g.Attributes[key] = value
	}
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
	var err error
	if info.Attributes, err = f.labelled(info.Attributes); err != nil {
		return err
	}
	info.Devices, err = f.offered(info.Devices)
	return err
}

// offered puts the devices that were typed, or stand in a file, into those that
// were found.
func (f *flags) offered(found []schema.DeviceGroup) ([]schema.DeviceGroup, error) {
	typed := slices.Clone(f.devices)
	if err := fromFile("--devices-file", f.devicesFile, &typed); err != nil {
		return nil, err
	}
	// Who says what of a kind there is has the last word on all of that kind.
	all := slices.DeleteFunc(slices.Clone(found), func(g schema.DeviceGroup) bool {
		return slices.ContainsFunc(typed, func(t schema.DeviceGroup) bool { return t.Kind == g.Kind })
	})
	all = append(all, typed...)
	if err := schema.CheckDevices(all); err != nil {
		return nil, usageError{err, ""}
	}
	return all, nil
}

// isolation begins the names of the attributes that say how a machine keeps tasks apart.
const isolation = "isolation."

// labelled returns attributes that were found with the labels that were typed or
// stand in the file now.
func (f *flags) labelled(found map[string]string) (map[string]string, error) {
	given := maps.Clone(f.labels)
	if err := fromFile("--labels-file", f.labelsFile, &given); err != nil {
		return nil, err
	}
	attributes := maps.Clone(found)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, taken := attributes[key]; taken || key == "machine" || strings.HasPrefix(key, isolation) {
			return nil, usageError{fmt.Errorf("label %q: the agent finds that out itself", key), "choose another key"}
		}
		attributes[key] = given[key]
	}
	return attributes, nil
}

// describeEvery is the time between two looks at whether the machine is to be described in another way.
const describeEvery = 2 * time.Second

// watchMachine follows the file of labels, and who programs services, until ctx ends. Labels that cannot be
// read, or are wrong, change nothing.
func (a *agent) watchMachine(ctx context.Context, f *flags, log *slog.Logger) error {
	tick := time.NewTicker(describeEvery)
	defer tick.Stop()
	trouble := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		is := a.loop.Info()
		info := is
		attributes, err := f.labelled(a.found.Attributes)
		if err != nil {
			if trouble != err.Error() {
				log.Warn("the labels stay as they were", "err", err)
			}
			trouble, attributes = err.Error(), maps.Clone(is.Attributes)
		} else {
			trouble = ""
		}
		info.Attributes = attributes
		a.names.describeAgain(&info)
		if maps.Equal(info.Attributes, is.Attributes) && slices.Equal(info.Notes, is.Notes) {
			continue
		}
		if err := a.loop.Describe(ctx, info.Attributes, info.Notes); err != nil {
			return nil // the agent ends
		}
		log.Info("the machine's labels or attributes have changed: joining again")
		a.link.Rejoin()
	}
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
