// Package naming is a master's side of the directory: what each machine of a cell knows of the
// others, so that names and services work while no master answers.
//
// In: snapshots of the cell as users see it, from which a Book makes the entries of the
// directory and what has changed in it, and acknowledgements of agents. Out: for each agent that
// reads it, the changes that lead from what it has to what is; and, for the machine of a task to
// which nothing is to be sent any more, that all agents know that.
//
// A Book is pure. A Directory, which puts one behind a lock and readers around it, is safe for
// concurrent use, and its Run follows the cell until its context ends.
package naming
