package screen

import (
	"unicode"
	"unicode/utf8"
)

// Head returns the beginning of s that fits n cells, with a mark where it is
// cut.
func Head(s string, n int) string {
	for i, r := range s {
		if n -= RuneCells(r); n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// Tail returns the end of s that fits n cells.
func Tail(s string, n int) string {
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n -= RuneCells(r); n < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

// Cells returns the width of s on a terminal; a tab counts as four.
func Cells(s string) (n int) {
	for _, r := range s {
		n += RuneCells(r)
	}
	return n
}

// RuneCells returns the width of a character: most have one cell, marks that join
// the one before have none, and those of East Asia and emoji have two (Unicode
// Standard Annex 11, the ranges that are wide throughout).
func RuneCells(r rune) int {
	switch {
	case r == '\t':
		return 4
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0x4dbf, Stride: 1},
		{Lo: 0x4e00, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff01, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x17000, Hi: 0x18aff, Stride: 1},
		{Lo: 0x1b000, Hi: 0x1b2ff, Stride: 1},
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1},
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1},
		{Lo: 0x1fa70, Hi: 0x1faff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}
