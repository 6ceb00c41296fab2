// Package lazyregexp has regular expressions that are compiled when they are first used: to
// compile all of them took a tenth of the start of each program, and most runs use few. That each
// of them compiles is checked by cmd/internal/rules.
package lazyregexp
