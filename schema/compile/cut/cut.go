package cut

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Blanked returns a text with spaces in the place of what is between two offsets, and of a comma behind it.
func Blanked(data []byte, from, to int) []byte {
	out := bytes.Clone(data)
	Blank(out, from, to)
	return out
}

// Blank writes spaces in the place of what is between two offsets of a text, and of a comma behind it.
func Blank(data []byte, from, to int) {
	rest := bytes.TrimLeft(data[to:], " \t")
	if bytes.HasPrefix(rest, []byte(",")) {
		to = len(data) - len(rest) + 1
	}
	blank(data, from, to)
}

func blank(data []byte, from, to int) {
	for i := from; i < to; i++ {
		if data[i] != '\n' {
			data[i] = ' '
		}
	}
}

// Place is a line and a column of a file as CUE has them, both from 1.
type Place struct{ Line, Column int }

func placeOf(n *yaml.Node) Place { return Place{n.Line, n.Column} }

// Data returns a file of YAML or JSON without the fields whose labels are at some places, and without the elements of lists,
// and documents of several, that begin at others; and whether all of these are there.
func Data(data []byte, fields, elements []Place) ([]byte, bool) {
	c := cutter{data: data, fields: map[Place]bool{}, elements: map[Place]bool{}}
	for _, p := range fields {
		c.fields[p] = true
	}
	for _, p := range elements {
		c.elements[p] = true
	}
	for n := 0; n <= len(data); {
		c.lines = append(c.lines, n)
		next := bytes.IndexByte(data[n:], '\n')
		if next < 0 {
			break
		}
		n += next + 1
	}
	documents, ok := documentsOf(data)
	if !ok {
		return data, false
	}
	for i, d := range documents {
		from, to := c.marker(d), len(data)
		if i+1 < len(documents) {
			to = c.marker(documents[i+1])
		}
		if len(documents) > 1 && c.takes(d) {
			if i == 0 { // or the next one would still be the second
				to = c.offset(placeOf(documents[1]))
			}
			c.gone = append(c.gone, part{from, to, false})
			continue
		}
		c.node(d, to)
	}
	return c.out(), len(c.gone) == len(c.fields)+len(c.elements)
}

// documentsOf returns the values of the documents of a file, and whether all of it can be read.
func documentsOf(data []byte) (out []*yaml.Node, ok bool) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		err := d.Decode(&n)
		if errors.Is(err, io.EOF) {
			return out, true
		}
		if err != nil || len(n.Content) == 0 {
			return nil, false
		}
		out = append(out, n.Content[0])
	}
}

// cutter looks for parts of a file, and leaves them out.
type cutter struct {
	data             []byte
	lines            []int // where each begins
	fields, elements map[Place]bool
	gone             []part         // in the order of the file
	empty            map[int]string // what lists and structs are of which nothing is left, by where they begin
}

// part is what goes; flow says that it stands between brackets.
type part struct {
	from, to int
	flow     bool
}

// out returns the file without what goes: the last part first, since what is last between brackets has no comma behind it.
func (c *cutter) out() []byte {
	out := bytes.Clone(c.data)
	for _, p := range slices.Backward(c.gone) {
		if p.flow {
			inFlow(out, p.from)
		} else {
			blank(out, p.from, p.to)
		}
	}
	for at, text := range c.empty {
		copy(out[at:], text)
	}
	return out
}

// offset returns where in the file a place is: the reader of YAML counts characters.
func (c *cutter) offset(at Place) int {
	n := c.lines[min(at.Line, len(c.lines))-1]
	for range at.Column - 1 {
		_, size := utf8.DecodeRune(c.data[n:])
		n += size
	}
	return n
}

// takes reports whether a value is an element that goes. CUE has the place behind its anchor.
func (c *cutter) takes(n *yaml.Node) bool {
	if c.elements[placeOf(n)] {
		return true
	}
	return n.Anchor != "" && (c.elements[Place{n.Line + 1, 1}] || len(n.Content) > 0 && c.elements[placeOf(n.Content[0])])
}

// node looks in a value, behind which to is what comes next.
func (c *cutter) node(n *yaml.Node, to int) {
	step := 1
	if n.Kind == yaml.MappingNode {
		step = 2
	} else if n.Kind != yaml.SequenceNode {
		return
	}
	flow := n.Style&yaml.FlowStyle != 0
	from := make([]int, 0, len(n.Content)+1)
	for i := 0; i < len(n.Content); i += step {
		from = append(from, c.from(n, n.Content[i], flow))
	}
	from = append(from, to)
	left := false
	for i := 0; i < len(n.Content); i += step {
		first, value := n.Content[i], n.Content[i+step-1]
		begin, end := from[i/step], from[i/step+1]
		known := begin >= 0 && end > begin+1
		if known && (step == 2 && c.fields[placeOf(first)] || step == 1 && c.takes(value)) {
			c.gone = append(c.gone, part{begin, end, flow})
			continue
		}
		left = true
		if known || flow {
			c.node(value, end)
		}
	}
	if !left && !flow && len(from) > 1 { // it would be null
		if c.empty == nil {
			c.empty = map[int]string{}
		}
		c.empty[from[0]] = map[int]string{1: " []", 2: "{}"}[step] // a list may begin where its label does, but not in brackets
	}
}

// from returns where a member of a list or a mapping begins, with its dash; negative if that is not known.
func (c *cutter) from(in, n *yaml.Node, flow bool) int {
	at := c.offset(placeOf(n))
	if in.Kind == yaml.MappingNode || flow {
		return at
	}
	for line := n.Line - 1; line >= 0; line-- {
		text := c.data[c.lines[line]:at]
		if i := bytes.IndexByte(text, '#'); line < n.Line-1 && i >= 0 {
			text = text[:i]
		}
		if text = bytes.TrimRight(text, " \t\r\n"); bytes.HasSuffix(text, []byte("-")) {
			return c.lines[line] + len(text) - 1
		}
		if len(text) > 0 {
			break
		}
		at = c.lines[line]
	}
	return -1
}

// marker returns where a document begins, with the line that separates it from the one before.
func (c *cutter) marker(n *yaml.Node) int {
	for line := n.Line - 1; line >= 0; line-- {
		if bytes.HasPrefix(c.data[c.lines[line]:], []byte("---")) {
			return c.lines[line]
		}
	}
	return 0
}

// inFlow blanks the member of a list or a struct in brackets that begins at an offset.
func inFlow(data []byte, from int) {
	to, depth := from, 0
	for ; to < len(data); to++ {
		switch ch := data[to]; ch {
		case '"', '\'':
			to = quoted(data, to)
		case '[', '{':
			depth++
		case ']', '}', ',':
			if depth == 0 && ch == ',' {
				blank(data, from, to+1)
				return
			}
			if depth == 0 { // it is the last one
				if before := bytes.TrimRight(data[:from], " \t\r\n"); bytes.HasSuffix(before, []byte(",")) {
					from = len(before) - 1
				}
				blank(data, from, to)
				return
			}
			if ch != ',' {
				depth--
			}
		}
	}
}

// quoted returns the offset of the quote that ends a text, or of the one that begins it if none does, or if it is only a
// character of a word.
func quoted(data []byte, from int) int {
	if from > 0 && bytes.IndexByte([]byte(" \t\n[{,:"), data[from-1]) < 0 {
		return from
	}
	for i := from + 1; i < len(data); i++ {
		switch {
		case data[from] == '"' && data[i] == '\\', data[from] == '\'' && bytes.HasPrefix(data[i:], []byte("''")):
			i++
		case data[i] == data[from]:
			return i
		}
	}
	return from
}
