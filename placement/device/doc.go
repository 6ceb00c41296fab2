// Package device chooses among the countable devices of one machine, such as GPUs: whole ones,
// or a share of one. Kinds and models are numbers, which the caller gives.
//
// All is functions of their arguments.
package device
