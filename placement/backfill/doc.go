// Package backfill counts what is left of a machine beside an ask for which it is held. In go amounts: what
// lacks for the ask, and what tasks leave that may go. Out comes what others may have. Functions are pure and
// may be called at any time; none of them decides who goes or comes.
package backfill
