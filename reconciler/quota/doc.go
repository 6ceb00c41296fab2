// Package quota says which desired jobs a cell takes on: Admit, and Question, which makes
// its input of a State in one place, so that the master and whoever checks a commit ask
// the same.
//
// In: what is desired, what runs, the size of the cell and the time. Out: an Admission,
// with a reason for each job that is rejected. Rejected is not pending: that a machine is
// full is placement's answer.
//
// It is pure.
package quota
