// Package syntax says in plain words what is wrong with a file that does not parse, by
// what people write who know other languages.
//
// In: the text of a file, and the message and position of the parser. Out: the diagnostic,
// at the place where the mistake is. It evaluates nothing; a File is not written once it
// is read.
package syntax
