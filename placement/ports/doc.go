// Package ports keeps which ports of one machine are taken. Two may hold the same one for a
// while, such as a task and the program that took its port: it is free once both have given it
// back.
//
// A Book is for one goroutine at a time.
package ports
