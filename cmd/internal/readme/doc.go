// Package readme runs the commands of the README, so that what a newcomer types
// first is what works.
//
// In: README.md and the source tree. Out: a test failure that names the line of
// the block that did not hold. Each fenced block of the language sh says in its
// info string how it is tested:
//
//	sh test=NAME                 run in the shell of tour NAME, in order
//	sh test=NAME fails=N         run likewise; its last command exits with N
//	sh test=NAME terminal=OTHER  run beside the tour until the tour has ended
//	sh by=WHAT                   run elsewhere: make-check
//
// A block without either fails the test. A tour has a home directory of its
// own, a fresh environment and the binaries in bin/ of its first working
// directory. A terminal's first line is waited for; a port at its end takes the
// place of PORT in later blocks. When the tour has ended, its terminals get
// SIGINT and have to exit with 0.
//
// The package has no code outside its tests, and leaves nothing behind.
package readme
