// Package forgetest is a forge for tests: the comments of one pull request behind a handler that
// takes what the API of that kind of forge takes, and nothing else.
//
// In: requests, and comments of others (Add). Out: the comments, and what was asked that a forge
// does not take. It is written after the references of the APIs, and never after package forge,
// of which it would else have the mistakes.
//
// A Forge may be used from any goroutine.
package forgetest
