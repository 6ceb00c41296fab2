package sim

import (
	"bufio"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Script is a history as data: a world, what is done to it, and whether it is
// left alone in the end and has to converge.
type Script struct {
	World   Config
	Actions []Action
	Calm    bool
}

// scriptHead is the first word of the line that describes the world.
const scriptHead = "world"

// calmWord is the line that ends a script after which the cell is left alone.
const calmWord = "calm"

// Play plays the script from the beginning with a bug, or nil, and returns the
// world that came of it and the first invariant that did not hold. A panic is one.
func (s *Script) Play(mutant *Mutant) (w *World, err error) {
	c := s.World
	c.Mutant = mutant
	w = New(c)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if err := w.Play(s.Actions); err != nil {
		return w, err
	}
	if s.Calm {
		w.chapterOf("the faults end, and the repository holds again what it did at first")
		if err := w.Calm(); err != nil || !s.World.DrainHalf && !s.World.EmptySome {
			return w, err
		}
		if s.World.EmptySome {
			w.chapterOf("nothing happens until machines of which little is used are emptied")
			return w, w.EmptySome()
		}
		w.chapterOf("half of the racks are drained, and no longer; then some jobs are updated")
		return w, w.DrainHalf()
	}
	return w, nil
}

// String writes the script as ParseScript reads it.
func (s *Script) String() string {
	var b strings.Builder
	line := func(word string, of any) {
		b.WriteString(word)
		for _, f := range fieldsOf(of) {
			fmt.Fprintf(&b, " %s=%v", f.name, f.value)
		}
		b.WriteByte('\n')
	}
	line(scriptHead, s.World)
	for _, a := range s.Actions {
		line(string(a.Do), a)
	}
	if s.Calm {
		b.WriteString(calmWord + "\n")
	}
	return b.String()
}

// ParseScript reads a script: a line for the world, one for each action, and
// "calm" if the cell is left alone in the end. A line is a word and what it is
// about as name=number; what is not said is 0. Empty lines and those that begin
// with # are for people. Mistakes are errors that name the line.
func ParseScript(text string) (*Script, error) {
	s := &Script{}
	seen := false
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		var err error
		switch {
		case s.Calm:
			err = fmt.Errorf("%q after %q, which ends a script", words[0], calmWord)
		case !seen && words[0] != scriptHead:
			err = fmt.Errorf("%q: want %q first, with seed= and machines=", words[0], scriptHead)
		case words[0] == scriptHead && seen:
			err = fmt.Errorf("a second %q", scriptHead)
		case words[0] == scriptHead:
			seen = true
			if err = setFields(&s.World, words[1:]); err == nil && s.World.Machines < 1 {
				err = fmt.Errorf("%d machines: want 1 at least", s.World.Machines)
			}
		case words[0] == calmWord:
			s.Calm = true
		default:
			a := Action{Do: ActionKind(words[0])}
			if known := actionKinds(); !slices.Contains(known, a.Do) {
				err = fmt.Errorf("%q: want one of %s", a.Do, known)
			} else {
				err = setFields(&a, words[1:])
			}
			s.Actions = append(s.Actions, a)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if !seen {
		return nil, fmt.Errorf("it has no line that begins with %q", scriptHead)
	}
	return s, lines.Err()
}

// actionKinds returns all that there are: changes, then faults.
func actionKinds() []ActionKind {
	return slices.Concat(slices.Sorted(maps.Keys(changes())), slices.Sorted(maps.Keys(faults())))
}

// field is a number, a truth or a word in a Config or an Action.
type field struct{ name, value string }

// fieldsOf returns the fields of a struct that are not 0, in their order, but for
// the word that its line begins with and what cannot be written.
func fieldsOf(of any) []field {
	var out []field
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if f := v.Field(i); written(f) && !f.IsZero() {
			out = append(out, field{strings.ToLower(v.Type().Field(i).Name), fmt.Sprint(f)})
		}
	}
	return out
}

func written(f reflect.Value) bool {
	_, word := f.Interface().(string)
	return f.CanInt() || f.CanUint() || f.Kind() == reflect.Bool || word
}

// setFields sets fields of the struct at to from name=value.
func setFields(to any, words []string) error {
	v := reflect.ValueOf(to).Elem()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		f := v.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, name) })
		var err error
		switch {
		case !f.IsValid():
			err = fmt.Errorf("unknown")
		case !written(f):
			err = fmt.Errorf("cannot be written in a script")
		case f.CanInt():
			var n int64
			n, err = strconv.ParseInt(value, 10, 64)
			f.SetInt(n)
		case f.CanUint():
			var n uint64
			n, err = strconv.ParseUint(value, 10, 64)
			f.SetUint(n)
		case f.Kind() == reflect.Bool:
			var yes bool
			yes, err = strconv.ParseBool(value)
			f.SetBool(yes)
		default:
			f.SetString(value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", word, err)
		}
	}
	return nil
}
