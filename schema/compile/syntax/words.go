package syntax

import (
	"bytes"
	"strings"

	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// File is a file that does not parse, as words: what its writer meant is
// found by what stands beside the word that the parser gave up at.
type File struct {
	path  string
	lines []string
	words []word
}

// word is one token of a file. A comma that the end of a line stands for has
// the text "\n".
type word struct {
	tok       token.Token
	text      string
	line, col int
	from, to  int // offsets in the file
}

// Read splits a file into words. Its path is that of the diagnostics.
func Read(path string, data []byte) *File {
	s := &File{path: path, lines: strings.Split(string(data), "\n"), words: make([]word, 0, len(data)/4)}
	file := token.NewFile(path, -1, len(data))
	var sc scanner.Scanner
	sc.Init(file, data, func(token.Pos, string, []any) {}, 0)
	var depth []int // of parentheses within each interpolation that is open
	for range len(data) + 1 {
		pos, tok, text := sc.Scan()
		if tok == token.EOF {
			break
		}
		s.add(data, pos, tok, text)
		switch last := len(depth) - 1; {
		case tok == token.INTERPOLATION:
			depth = append(depth, 0)
		case tok == token.LPAREN && last >= 0:
			depth[last]++
		case tok == token.RPAREN && last >= 0 && depth[last] > 1:
			depth[last]--
		case tok == token.RPAREN && last >= 0:
			if rest := sc.ResumeInterpolation(); !strings.HasSuffix(rest, `\(`) {
				depth = depth[:last]
			} else {
				depth[last] = 0
			}
		}
	}
	return s
}

func (s *File) add(data []byte, pos token.Pos, tok token.Token, text string) {
	w := word{tok: tok, text: text, line: pos.Line(), col: pos.Column(), from: pos.Offset()}
	if text == "" {
		w.text = tok.String()
	}
	w.to = w.from + len(w.text)
	if tok == token.STRING || tok == token.INTERPOLATION { // the text may have been normalised
		w.to = min(w.to, len(data))
	}
	if w.text == "\n" || tok == token.COMMA && !bytes.HasPrefix(data[min(w.from, len(data)):], []byte(",")) {
		w.text, w.to = "\n", w.from
	}
	s.words = append(s.words, w)
}

// at returns the index of the first word at or behind a position.
func (s *File) at(line, col int) int {
	for i, w := range s.words {
		if w.text != "\n" && (w.line > line || w.line == line && w.col >= col) {
			return i
		}
	}
	return len(s.words)
}

// word returns the word with index i, an empty one if there is none.
func (s *File) word(i int) word {
	if i < 0 || i >= len(s.words) {
		return word{tok: token.EOF}
	}
	return s.words[i]
}

// line returns a line without the space around it; lines count from 1.
func (s *File) line(n int) string {
	if n < 1 || n > len(s.lines) {
		return ""
	}
	return strings.TrimSpace(s.lines[n-1])
}

// first returns the index of the first word of a line, len(s.words) if the line
// has none.
func (s *File) first(line int) int {
	i := s.at(line, 1)
	if s.word(i).line != line {
		return len(s.words)
	}
	return i
}

// begins reports whether the word with index i begins a field or an element.
func (s *File) begins(i int) bool {
	w := s.word(i - 1)
	return i == 0 || w.tok == token.COMMA || w.tok == token.LBRACE || w.tok == token.LBRACK || w.tok == token.COLON
}

// joined reports whether the words with index i and i+1 stand together without
// space.
func (s *File) joined(i int) bool {
	return i >= 0 && i+1 < len(s.words) && s.words[i].to == s.words[i+1].from && s.words[i].text != "\n" && s.words[i+1].text != "\n"
}

// listed reports whether the word with index i stands directly in a list.
func (s *File) listed(i int) bool {
	depth := 0
	for i--; i >= 0; i-- {
		switch s.words[i].tok {
		case token.RBRACE, token.RBRACK, token.RPAREN:
			depth++
		case token.LBRACE, token.LBRACK, token.LPAREN:
			if depth == 0 {
				return s.words[i].tok == token.LBRACK
			}
			depth--
		}
	}
	return false
}

func (s *File) pos(w word) schema.Position {
	return schema.Position{Path: s.path, Line: w.line, Column: w.col}
}

func isName(w word) bool    { return w.tok == token.IDENT || w.tok == token.STRING }
func isNumber(w word) bool  { return w.tok == token.INT || w.tok == token.FLOAT }
func isOperand(w word) bool { return isName(w) || isNumber(w) || w.tok == token.INTERPOLATION }

// indent returns how far the line of a word is indented, in characters.
func (s *File) indent(line int) int {
	if line < 1 || line > len(s.lines) {
		return 0
	}
	return len(s.lines[line-1]) - len(strings.TrimLeft(s.lines[line-1], " \t"))
}

// unbalanced returns the bracket that has no partner, and the one that stands
// where its partner should (an empty word at the end of the file). Where a file
// has too few, the indentation says which one is left open.
func (s *File) unbalanced() (open, found word, ok bool) {
	partner := map[token.Token]token.Token{token.RBRACE: token.LBRACE, token.RBRACK: token.LBRACK, token.RPAREN: token.LPAREN}
	var stack []word
	suspect := word{}
	for i, w := range s.words {
		switch w.tok {
		case token.LBRACE, token.LBRACK, token.LPAREN: // also that of an interpolation
			stack = append(stack, w)
		case token.RBRACE, token.RBRACK, token.RPAREN:
			if len(stack) == 0 {
				return word{}, w, true
			}
			top := stack[len(stack)-1]
			if top.tok != partner[w.tok] {
				return top, w, true
			}
			stack = stack[:len(stack)-1]
			first := s.first(w.line) == i
			if first && suspect.tok == 0 && top.line != w.line && s.indent(top.line) > s.indent(w.line) {
				suspect = top
			}
		}
	}
	if len(stack) == 0 {
		return word{}, word{}, false
	}
	if suspect.tok != 0 {
		return suspect, word{tok: token.EOF}, true
	}
	return stack[len(stack)-1], word{tok: token.EOF}, true
}
