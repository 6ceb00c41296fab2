package readme

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// block is one fenced block of shell commands.
type block struct {
	line     int // of the fence, counted from 1
	tour     string
	terminal string // "" is the tour's own shell
	silent   bool   // the terminal prints no address
	fails    int    // exit status of the last command
	by       string
	text     string
	shows    []string // lines that its output has, in this order
}

// parse returns the shell blocks of a Markdown file. It errs when a block does
// not say how it is tested, or says it in words that are not known, and when a
// block of text shows the output of nothing.
func parse(markdown string) ([]block, error) {
	var out []block
	var b *block     // that is open
	var shows *block // whose output the open block has
	fence := ""      // of the open block
	for i, line := range strings.Split(markdown, "\n") {
		ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence != "" && line == fence:
			fence, b, shows = "", nil, nil
		case b != nil:
			b.text += line + "\n"
		case shows != nil:
			shows.shows = append(shows.shows, line)
		case fence != "":
		case len(ticks) >= 3:
			fence = ticks
			info := strings.Fields(line[len(ticks):])
			if slices.Equal(info, []string{"text", "shows"}) {
				if len(out) == 0 || out[len(out)-1].terminal != "" {
					return nil, fmt.Errorf("line %d: no block of commands is before it", i+1)
				}
				shows = &out[len(out)-1]
				continue
			}
			if len(info) == 0 || !slices.Contains([]string{"sh", "bash", "shell", "console"}, info[0]) {
				continue
			}
			n, err := newBlock(info[1:])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			n.line = i + 1
			out = append(out, n)
			b = &out[len(out)-1]
		}
	}
	if fence != "" {
		return nil, fmt.Errorf("a block is not closed with %s", fence)
	}
	return out, nil
}

// newBlock returns the block that an info string describes.
func newBlock(info []string) (block, error) {
	var b block
	for _, word := range info {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch {
		case value == "":
			err = fmt.Errorf("%q has no value", word)
		case key == "test":
			b.tour = value
		case key == "terminal":
			b.terminal = value
		case word == "silent=yes":
			b.silent = true
		case key == "fails":
			b.fails, err = strconv.Atoi(value)
		case key == "by":
			b.by = value
		default:
			err = fmt.Errorf("%q is not known", word)
		}
		if err != nil {
			return block{}, err
		}
	}
	switch {
	case b.tour == "" && b.by == "":
		return block{}, fmt.Errorf("a shell block says neither test= nor by=: nothing would ever run it")
	case b.by != "" && b.by != "make-check":
		return block{}, fmt.Errorf("by=%s is not known", b.by)
	case b.terminal != "" && b.fails != 0:
		return block{}, fmt.Errorf("a terminal ends with SIGINT, so fails= means nothing")
	case b.silent && b.terminal == "":
		return block{}, fmt.Errorf("silent= is for terminals")
	}
	return b, nil
}

// missing returns the first of the lines that output does not have after those
// before it, "" if it has all. What is … in a line may be anything, and columns
// may be of any width.
func missing(lines []string, output string) string {
	rest := strings.Split(output, "\n")
	for _, want := range lines {
		var words []string
		for word := range strings.FieldsSeq(want) {
			words = append(words, strings.ReplaceAll(regexp.QuoteMeta(word), "…", ".*"))
		}
		re := regexp.MustCompile(`^\s*` + strings.Join(words, `\s+`) + `\s*$`)
		i := slices.IndexFunc(rest, re.MatchString)
		if i < 0 {
			return want
		}
		rest = rest[i+1:]
	}
	return ""
}
