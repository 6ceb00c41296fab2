// Package turns has runs of the same tests take turns: what finds more the longer it
// runs, as a walk through each step of something or a matrix, does a part of it in each of
// N runs, and all of it in a run by hand. Only tests use it. It lies below all layers,
// since tests of each take turns by the same variable.
//
// In: an environment variable, and a number of a step or a case. Out: whether this run
// takes it. It is safe for concurrent use.
package turns
