// Package trace finds what a value of CUE is made of: the values that it refers to, the fields
// that its definitions have, and the arguments of the templates that are written as functions.
//
// In: values, and of LetsOf the files of a package. Out: values, labels and errors of CUE's. It looks at nothing
// else, and is as safe for concurrent use as the values are: not at all.
package trace
