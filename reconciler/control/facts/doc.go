// Package facts answers what is so in a cell, as the controllers see it: which machines
// are up, which tasks are healthy, what a budget allows, how far a rollout has come.
//
// In: the documents of a State with the changes that are about to be stored (View), what
// agents have said, what is desired, the time. Out: answers. One that time alone may
// change comes with Until, and whoever acts on the answer asks to be woken then: a
// question books nothing, writes nothing and decides nothing. It lies under the draft and
// the controllers, which it does not know.
//
// It is pure. A Facts is of one moment, and belongs to one goroutine. What it keeps to
// spare work is a function of the documents, and is found out again when they change.
package facts
