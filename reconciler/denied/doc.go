// Package denied reports what a master refuses to those who may not ask for it:
// each refusal in a metric, and few of them in the log and in the cell's history,
// whoever causes them and however often.
//
// In: refusals, with a reason of a short list. Out: a counter for each reason, lines of
// the log, events.
//
// All methods may be called from any goroutine. It never decides who may do what.
package denied
