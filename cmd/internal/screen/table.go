package screen

import (
	"slices"
	"strings"
)

// Column is a column of a Table.
type Column struct {
	Head string
	// Least is the width to which its cells may be cut, marked with …; 0: they are
	// never cut.
	Least int
	// Rank says which columns are left out first where the screen is too narrow
	// for all: those of the highest rank. Columns of rank 0 are never left out.
	Rank int
	// Always keeps a column of which all cells are empty or "0".
	Always bool
}

// Cell is what stands in a row and a column.
type Cell struct {
	Text   string
	Colour string // one of the colours, "" for none
}

// Table is rows below columns.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// gap is what stands between two columns.
const gap = 2

// Text returns the table for a screen of so many cells, 0 for one without end. First
// columns are left out, by rank; then cells are cut, the last column's first.
func (t *Table) Text(width int, p Painter) string {
	shown := []int{}
	for i := range t.Columns {
		if t.Columns[i].Always || slices.ContainsFunc(t.Rows, func(r []Cell) bool { return r[i].Text != "" && r[i].Text != "0" }) {
			shown = append(shown, i)
		}
	}
	widths := t.widths(shown)
	if width > 0 {
		for least(t, shown, widths) > width && t.leaveOut(&shown) {
		}
		t.cut(shown, widths, width)
	}
	var b strings.Builder
	line := func(cell func(i int) Cell) {
		var l strings.Builder
		for n, i := range shown {
			c := cell(i)
			text := Elide(oneLine(c.Text), widths[i])
			l.WriteString(string(p.Paint(c.Colour, text)))
			if n < len(shown)-1 {
				l.WriteString(strings.Repeat(" ", widths[i]-Cells(text)+gap))
			}
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(func(i int) Cell { return Cell{Text: t.Columns[i].Head} })
	for _, r := range t.Rows {
		line(func(i int) Cell { return r[i] })
	}
	return b.String()
}

// widths returns how wide each column would be.
func (t *Table) widths(shown []int) []int {
	widths := make([]int, len(t.Columns))
	for _, i := range shown {
		widths[i] = Cells(t.Columns[i].Head)
		for _, r := range t.Rows {
			widths[i] = max(widths[i], Cells(oneLine(r[i].Text)))
		}
	}
	return widths
}

// least returns how wide the table is with all cells cut as far as they may be.
func least(t *Table, shown, widths []int) int {
	sum := gap * (len(shown) - 1)
	for _, i := range shown {
		if l := t.Columns[i].Least; l > 0 {
			sum += min(widths[i], l)
		} else {
			sum += widths[i]
		}
	}
	return sum
}

// leaveOut takes the column of the highest rank out of those shown, and reports
// whether there was one.
func (t *Table) leaveOut(shown *[]int) bool {
	most := -1
	for n, i := range *shown {
		if r := t.Columns[i].Rank; r > 0 && (most < 0 || r > t.Columns[(*shown)[most]].Rank) {
			most = n
		}
	}
	if most >= 0 {
		*shown = slices.Delete(*shown, most, most+1)
	}
	return most >= 0
}

// cut makes columns narrower until the table fits, the last one first.
func (t *Table) cut(shown, widths []int, width int) {
	over := gap*(len(shown)-1) - width
	for _, i := range shown {
		over += widths[i]
	}
	for n := len(shown) - 1; n >= 0 && over > 0; n-- {
		i := shown[n]
		if l := t.Columns[i].Least; l > 0 && widths[i] > l {
			by := min(over, widths[i]-l)
			widths[i], over = widths[i]-by, over-by
		}
	}
}

// Elide returns s in at most n cells, with a mark where it is cut.
func Elide(s string, n int) string {
	if n <= 0 || Cells(s) <= n {
		return s
	}
	return Head(s, n-1)
}

// oneLine returns s without what would break the line that it stands in.
func oneLine(s string) string {
	if strings.ContainsAny(s, "\n\t") {
		s = strings.Join(strings.Fields(whiteSpace.Replace(s)), " ")
	}
	return Printable(s)
}

// Fold returns a line of a label and a text. If it is longer than width cells, 0 for no
// bound, its rest follows in lines that stand in by two more.
func Fold(label, text string, width int) string {
	label, text = Printable(label), spaced(text)
	if width == 0 || Cells(label)+Cells(text) <= width {
		return label + text + "\n"
	}
	in := len(label) - len(strings.TrimLeft(label, " "))
	return Wrap(label, strings.Repeat(" ", in+2), text, width)
}

// Break returns text with lines broken that are wider than width cells, 0 for no bound, where there
// is a space if there is one. The rest of a line is further in. Other than Wrap it keeps the spaces.
func Break(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		rest := line[:len(line)-len(strings.TrimLeft(line, " "))] + "    "
		width := max(width, len(rest)+8)
		for Cells(line) > width {
			part := strings.TrimSuffix(Head(line, width), "…")
			if at := strings.LastIndexByte(part, ' '); at >= len(rest) {
				part = part[:at+1]
			}
			b.WriteString(strings.TrimRight(part, " ") + "\n")
			line = rest + strings.TrimLeft(line[len(part):], " ")
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// Wrap returns s in lines of at most width cells, 0 for no bound: the first begins
// with first, the others with rest. It breaks lines at spaces, and words that are
// longer than a line.
func Wrap(first, rest, s string, width int) string {
	first = Printable(first)
	line, begun := first, false
	var b strings.Builder
	for _, word := range strings.Fields(spaced(s)) {
		if width > 0 && begun && Cells(line)+1+Cells(word) > width {
			b.WriteString(line + "\n")
			line, begun = rest, false
		}
		if width > 0 && !begun && line == first && strings.TrimSpace(first) != "" && Cells(line)+Cells(word) > width && Cells(rest)+Cells(word) <= width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = rest
		}
		for width > 0 && Cells(line)+Cells(word) > width && !begun {
			room := max(width-Cells(line), 8)
			part := strings.TrimSuffix(Head(word, room), "…")
			if part == word {
				break
			}
			b.WriteString(line + part + "\n")
			line, word = rest, word[len(part):]
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	b.WriteString(line + "\n")
	return b.String()
}
