// Package screen writes a cell's status for people who look at a terminal.
//
// In: what the master's API answers, and a View: how wide the screen is, whether it
// has colours, what of the status is wanted. Out: text, of which no line is wider
// than the screen. The functions are pure: the same status and View give the same
// text, and ages count to the time at which the status was taken. Any goroutine may
// call them. The package asks nobody, and knows no terminal.
package screen
