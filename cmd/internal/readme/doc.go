// Package readme runs the commands of the README, of the pages of the examples,
// and of docs/operations.md on a cell of several machines, so that what a newcomer
// types first is what works.
//
// In: README.md, examples, docs and the source tree. Out: a test failure that names
// the line of the block that did not hold. Each fenced block of the language sh
// says in its info string how it is tested:
//
//	sh test=NAME                 run in the shell of tour NAME, in order
//	sh test=NAME fails=N         run likewise; its last command exits with N
//	sh test=NAME terminal=OTHER  run beside the tour until the tour has ended;
//	                             with silent=yes it is not waited for
//	sh by=WHAT                   run elsewhere: make-check
//	text shows                   lines that the output of the block of commands
//	                             before it has, in this order; … is anything
//
// A block of commands without either fails the test. A block of CUE in docs says in
// its info string of which directory it could be a file, cue in=DIR, and is compiled
// and admitted there. A tour has a home directory
// of its own and a fresh environment. The README's has the binaries in bin/ of its
// first working directory; that of an example has them in its PATH, and the example
// in examples/ of its first working directory. A terminal's first line is waited
// for; an address at its end takes the place of ADDRESS in later blocks, until the next
// terminal's. When the tour has ended, its terminals get SIGINT and have to exit
// with 0.
//
// An example is checked by the real cue command too, and its definitions are held
// to those of this source. Programs that a machine need not have are stood in for
// by those of testdata/bin; the page of the example says so.
//
// The package has no code outside its tests, and leaves nothing behind.
package readme
