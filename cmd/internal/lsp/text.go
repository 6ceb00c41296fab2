package lsp

import (
	"bytes"
	"net/url"
	"path/filepath"
	"unicode/utf8"
)

// place is a position of the protocol: both count from 0, the second in code units of
// UTF-16.
type place struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type span struct {
	Start place `json:"start"`
	End   place `json:"end"`
}

// lineAt returns where a line of a text begins and ends, counted from 0; the end of the
// text for one that is not there.
func lineAt(text []byte, line int) (from, to int) {
	for range line {
		next := bytes.IndexByte(text[from:], '\n')
		if next < 0 {
			return len(text), len(text)
		}
		from += next + 1
	}
	if n := bytes.IndexByte(text[from:], '\n'); n >= 0 {
		return from, from + n
	}
	return from, len(text)
}

// units returns how many code units of UTF-16 a text has.
func units(b []byte) (n int) {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if n++; r > 0xFFFF {
			n++
		}
		b = b[size:]
	}
	return n
}

// offset returns where a position is in a text.
func offset(text []byte, p place) int {
	from, to := lineAt(text, p.Line)
	if to > from && text[to-1] == '\r' {
		to-- // a line ends before both
	}
	for n := 0; from < to && n < p.Character; {
		r, size := utf8.DecodeRune(text[from:])
		if n++; r > 0xFFFF {
			n++
		}
		from += size
	}
	return from
}

// word returns the range of what stands at a line and a column in bytes, both counted from
// 1: a word, a text in quotes, or one character. Without a line it is the first line.
func word(text []byte, line, column int) span {
	from, to := lineAt(text, max(line-1, 0))
	at := min(from+max(column-1, 0), to)
	end := at
	if quoted := at < to && text[at] == '"'; quoted {
		for end++; end < to && text[end] != '"'; end++ {
			if text[end] == '\\' {
				end++
			}
		}
		end = min(end+1, to)
	} else {
		for end < to && !bytes.ContainsRune([]byte(" \t\r,:{}[]()&|"), rune(text[end])) {
			end++
		}
		if end == at && at < to {
			_, size := utf8.DecodeRune(text[at:])
			end += size
		}
	}
	l := max(line-1, 0)
	return span{place{l, units(text[from:at])}, place{l, units(text[from:end])}}
}

// pathOf returns the path of a document, "" if it is no file.
func pathOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	return filepath.FromSlash(u.Path)
}

func uriOf(path string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String()
}
