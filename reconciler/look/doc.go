// Package look lets callers ask a source for a look and wait for what it found.
//
// In: requests, from any goroutine. Out: to each of them, the model.Seen of a look that
// began after the request did, once the source has reported it to its own caller. Requests
// that come before a look begins share it; one that is in progress answers none that came
// since, for what they ask about may have happened meanwhile. A source is one goroutine: it
// waits on Asked, and calls Begin before it looks. It never looks by itself.
package look
