// Package spread has a file system lay directories apart.
//
// In: a directory. Out: nothing but where the disk has what is made in it from then on. It
// keeps nothing, and may be called from any goroutine. It never fails, for it asks for a favour, and
// it must not touch what is in the directory.
package spread
