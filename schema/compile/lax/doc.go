// Package lax parses the files of a package so that as little as possible in it is an
// error: what only says what a value may be is taken out, and definitions take any field.
// A package that has errors is evaluated again in this form, since an error hides others,
// and what the strict pass of package valid would say better.
//
// In: the text of a file. Out: its syntax, changed. It also holds the embedded definitions
// as syntax. The package evaluates nothing, and all of it is safe for concurrent use.
package lax
