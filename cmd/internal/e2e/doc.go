// Package e2e holds the tests that run a cell as users do, as processes of their
// own, and do to it what the demo does not: kill its parts at random moments and at
// each durable write, cut its hosts off, lose its stores, set a clock, upgrade it, read
// its socket tables, weigh it.
//
// In: the three binaries (see package binaries), of the release before, too, and a seed.
// Out: nothing but failed tests; the package is for tests alone. Every task of these
// cells keeps a journal of its own life (see journal_test.go), so that what happened is
// known from the tasks themselves, whatever the cell says.
package e2e
