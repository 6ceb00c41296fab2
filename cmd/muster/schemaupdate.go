package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/repofiles"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/scaffold"
)

func newSchemaUpdate(std stdio) *cobra.Command {
	var check, force, rewrite bool
	var out *outputFlag
	c := &cobra.Command{
		Use:   "update [DIR]",
		Short: "update the definitions in a config repository to this version of muster",
		Long: `Update the definitions in muster/ of the config repository at DIR (default: the current
directory) to those of this version of muster: print the changes by file and field, and
write them. Nothing is committed. With --check nothing is written, and the exit code is
1 when there are changes.

Files that you have edited are not overwritten (the first line of each file has a
checksum): the update then writes nothing, prints the edits that it would remove, and
exits with 1; --force removes them. Put rules of your own into a file of your own in
muster/, such as muster/own.cue: CUE unifies definitions of the same name, and no
update touches it. Going back to the definitions of an older version needs --force too.

With --rewrite the other CUE files, and the files of YAML and JSON that they embed, are changed as
well: fields that have got another name are written under it, and so is what refers to them. Comments and format stay. What the
repository declares is the same after it, and what its tests say: that is compiled before
anything is written, and else nothing is. Names that cannot be changed with certainty stay as they
are, and are listed for you to change. --check prints the changes alone.`,
		Example: "  muster schema update --rewrite --check\n  muster schema update fleet && git -C fleet diff\n  muster schema update --check -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := newUpdate(operand(args))
			if err != nil {
				return err
			}
			if rewrite {
				err = u.rewrite(cmd.Context(), std)
			}
			if err == nil {
				err = u.run(check, force)
			}
			if out.value == "json" {
				if printErr := printJSON(std.out, u); printErr != nil {
					return printErr
				}
				return err
			}
			u.print(std)
			return err
		},
	}
	c.Flags().BoolVar(&check, "check", false, "write nothing; exit with 1 when the definitions are not those of this version")
	c.Flags().BoolVar(&force, "force", false, "overwrite files that were edited, and definitions that are newer")
	c.Flags().BoolVar(&rewrite, "rewrite", false, "write fields under the names that they have now, in all files")
	out = addOutput(c, "text", "json")
	return c
}

// schemaUpdate is what an update of a repository's definitions does, and what it
// prints as JSON.
type schemaUpdate struct {
	Dir     string               `json:"dir"`
	Current bool                 `json:"current"` // before anything was written
	Newer   bool                 `json:"newer"`   // the repository knows what this muster does not
	Written bool                 `json:"written"`
	Files   []updateFile         `json:"files"`
	Fields  compile.FieldChanges `json:"fields"`
	// Rewritten are the other files that --rewrite changes, Left the names that it leaves as they are,
	// since nothing is made from them, and Remaining those that are for the user to change.
	Rewritten []rewrittenFile     `json:"rewritten,omitempty"`
	Left      []schema.Position   `json:"left,omitempty"`
	Remaining []schema.Diagnostic `json:"remaining,omitempty"`

	changes  []scaffold.Change
	rewrites []compile.Change
}

type updateFile struct {
	Path  string         `json:"path"`
	State scaffold.State `json:"state"`
	Diff  string         `json:"diff,omitempty"`
}

// newUpdate compares the definitions of the repository at dir.
func newUpdate(dir string) (*schemaUpdate, error) {
	if _, err := os.Stat(filepath.Join(dir, "cue.mod", "module.cue")); err != nil {
		return nil, &failure{code: exitInvalid, err: fmt.Errorf("%s is not a config repository: %w", dir, err), hint: "name the directory that has cue.mod; muster init DIR writes a new one"}
	}
	present, err := readDefinitions(dir)
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err, hint: "move it away: the definitions are ordinary files of the repository"}
	}
	u := &schemaUpdate{Dir: dir, Files: []updateFile{}, changes: scaffold.Compare(present)}
	fields, newer, err := compareDefinitions(u.changes)
	if err != nil {
		// What cannot be read was edited: the diff shows it.
		fields = compile.CompareFields(nil, nil)
	}
	u.Fields, u.Newer = fields, newer
	u.Current = len(scaffold.Apply(u.changes)) == 0
	for _, c := range u.changes {
		f := updateFile{Path: c.Path, State: c.State}
		if c.State != scaffold.Current {
			f.Diff = diffOf(c)
		}
		u.Files = append(u.Files, f)
	}
	return u, nil
}

// readDefinitions reads the files of the repository's schema directory, by path
// from the root; none if there is no such directory.
func readDefinitions(dir string) (map[string][]byte, error) {
	at := filepath.Join(dir, scaffold.Dir)
	if info, err := os.Lstat(at); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", at)
	}
	entries, err := os.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, e := range entries {
		switch {
		case e.IsDir() || !strings.HasSuffix(e.Name(), ".cue"):
			continue
		case !e.Type().IsRegular():
			return nil, fmt.Errorf("%s is not a regular file", filepath.Join(at, e.Name()))
		}
		b, err := os.ReadFile(filepath.Join(at, e.Name()))
		if err != nil {
			return nil, err
		}
		out[scaffold.Dir+"/"+e.Name()] = b
	}
	return out, nil
}

// compareDefinitions returns what an update changes, field by field, and whether
// the repository's definitions are newer: it knows fields that this binary does
// not, and none the other way round.
func compareDefinitions(changes []scaffold.Change) (compile.FieldChanges, bool, error) {
	old, now := map[string][]byte{}, map[string][]byte{}
	for _, c := range changes {
		if c.Old != nil {
			old[c.Path] = c.Old
		}
		switch {
		case c.State == scaffold.Kept:
			now[c.Path] = c.Old
		case c.New != nil:
			now[c.Path] = c.New
		}
	}
	before, err := compile.Fields(old)
	if err != nil {
		return compile.FieldChanges{}, false, err
	}
	after, err := compile.Fields(now)
	if err != nil {
		return compile.FieldChanges{}, false, err
	}
	fields := compile.CompareFields(before, after)
	return fields, len(fields.Removed) > 0 && len(fields.Added) == 0 && !slices.ContainsFunc(changes, edited), nil
}

func edited(c scaffold.Change) bool { return c.State == scaffold.Edited }

func diffOf(c scaffold.Change) string {
	from, to := "a/"+c.Path, "b/"+c.Path
	if c.Old == nil {
		from = "/dev/null"
	}
	if c.New == nil {
		to = "/dev/null"
	}
	// The first line is of the form of diff's own command line.
	_, text, _ := strings.Cut(string(diff.Diff(from, c.Old, to, c.New)), "\n")
	return text
}

// run writes what has to be, unless it must not.
func (u *schemaUpdate) run(check, force bool) error {
	var mine []string
	for _, c := range u.changes {
		if edited(c) {
			mine = append(mine, c.Path)
		}
	}
	current := u.Current && len(u.rewrites) == 0
	switch {
	case current:
		return nil
	case check && u.Current:
		return &failure{code: exitDiffers, err: fmt.Errorf("%d files have former names of fields", len(u.rewrites)), hint: "muster schema update --rewrite " + u.Dir}
	case check:
		return &failure{code: exitDiffers, err: fmt.Errorf("the definitions in %s are not those of this version of muster", filepath.Join(u.Dir, scaffold.Dir)), hint: "muster schema update " + u.Dir}
	case len(mine) > 0 && !force:
		return &failure{
			code: exitDiffers, err: fmt.Errorf("edited, and not by muster: %s; nothing was written", strings.Join(mine, ", ")),
			hint: "move the edits into a file of your own, such as muster/own.cue, and run again with --force: it removes the lines with - above",
		}
	case u.Newer && !force:
		return &failure{
			code: exitDiffers, err: fmt.Errorf("the definitions in %s are newer than this version of muster (%s); nothing was written", filepath.Join(u.Dir, scaffold.Dir), version),
			hint: "use the muster that wrote them, or a newer one; --force goes back",
		}
	}
	files, was := scaffold.Apply(u.changes), map[string][]byte{}
	for _, c := range u.changes {
		if _, ok := files[c.Path]; ok && c.Old != nil {
			was[c.Path] = c.Old
		}
	}
	for _, c := range u.rewrites {
		files[c.Path], was[c.Path] = c.New, c.Old
	}
	if err := repofiles.Replace(u.Dir, files, was); err != nil {
		hint := "make it writable, and run it again"
		if errors.Is(err, repofiles.ErrChanged) {
			hint = "run it again"
		}
		return &failure{code: exitCouldNot, err: fmt.Errorf("nothing was written: %w", err), hint: hint}
	}
	u.Written = true
	return nil
}

// print shows what changes: the diffs, then the fields, then what was done.
func (u *schemaUpdate) print(std stdio) {
	p := screen.Painter(isTerminal(std.out))
	for _, f := range u.Files {
		if f.State == scaffold.Kept {
			screen.Printf(std.out, "%s has your edits, and is otherwise current: it is kept\n", f.Path)
		} else if f.Diff != "" {
			screen.Printf(std.out, "%s is %s\n", p.Paint(screen.Bold, f.Path), f.State)
			printDiff(std.out, p, f.Diff)
		}
	}
	for _, c := range u.Fields.Removed {
		screen.Printf(std.out, "%s\n", p.Paint(screen.Red, "- "+c.Path+": "+c.Old))
	}
	for _, c := range u.Fields.Added {
		screen.Printf(std.out, "%s\n", p.Paint(screen.Green, "+ "+c.Path+": "+c.New))
	}
	for _, c := range u.Fields.Changed {
		screen.Printf(std.out, "%s\n    was %s\n    now %s\n", p.Paint(screen.Yellow, "~ "+c.Path), c.Old, c.New)
	}
	if !u.Current {
		screen.Printf(std.out, "fields: %d new, %d removed, %d changed\n", len(u.Fields.Added), len(u.Fields.Removed), len(u.Fields.Changed))
	}
	u.printRewrites(std, p)
	at := filepath.Join(u.Dir, scaffold.Dir)
	switch {
	case u.Current:
		screen.Printf(std.out, "the definitions in %s are current\n", at)
	case u.Written:
		screen.Printf(std.out, "the definitions in %s were updated\n", at)
	}
	if u.Written {
		screen.Printf(std.err, "next: muster validate %s, and commit it\n", u.Dir)
	}
}

func printDiff(w io.Writer, p screen.Painter, text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		colour := ""
		switch {
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"):
			colour = screen.Bold
		case strings.HasPrefix(line, "-"):
			colour = screen.Red
		case strings.HasPrefix(line, "+"):
			colour = screen.Green
		}
		if colour == "" {
			screen.Printf(w, "%s\n", screen.Painted(screen.PrintableSource(line)))
			continue
		}
		screen.Printf(w, "%s\n", p.PaintSource(colour, line))
	}
}

// staleDefinitions warns when the definitions of a repository are not those of
// this binary. Edits of current ones are nothing to warn about.
func staleDefinitions(dir string, files map[string]schema.File) []schema.Diagnostic {
	present := map[string][]byte{}
	for name, f := range files {
		if path.Dir(name) == scaffold.Dir {
			present[name] = f.Data
		}
	}
	if len(present) == 0 {
		return nil // the repository has its definitions elsewhere, or none
	}
	changes := scaffold.Compare(present)
	if len(scaffold.Apply(changes)) == 0 {
		return nil
	}
	d := schema.Diagnostic{
		Severity: schema.Warning, Rule: schema.RuleRepository, Position: schema.Position{Path: "cue.mod/module.cue", Line: 1, Column: 1},
		Message: "the definitions in " + scaffold.Dir + " are older than this version of muster", Hint: "muster schema update " + dir,
	}
	for _, c := range changes { // the first that is there to point at
		if c.State != scaffold.Current && c.State != scaffold.Kept && c.State != scaffold.New {
			d.Path = c.Path
			break
		}
	}
	fields, newer, err := compareDefinitions(changes)
	switch {
	case err != nil: // the compiler says what is wrong with them
	case newer:
		d.Message = "the definitions in " + scaffold.Dir + " are newer than this version of muster: it does not know " + names(fields.Removed)
		d.Hint = "use the muster that your cell runs"
	case len(fields.Added) == 0 && slices.ContainsFunc(changes, edited):
		d.Message = changes[slices.IndexFunc(changes, edited)].Path + " was edited, and is not based on this version of muster"
	case len(fields.Added) > 0:
		d.Message += ": they lack " + names(fields.Added)
	}
	return []schema.Diagnostic{d}
}

// names returns the paths of a few fields.
func names(fields []compile.FieldChange) string {
	const few = 3
	var out []string
	for _, f := range fields[:min(few, len(fields))] {
		out = append(out, f.Path)
	}
	if n := len(fields) - few; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), n)
	}
	return strings.Join(out, ", ")
}
