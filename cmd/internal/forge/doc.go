// Package forge keeps one comment in a pull request up to date: for the CI of a config
// repository, which has no more than the token that its forge gives it.
//
// In: a Thread, as the environment of the CI names it (From), and Markdown. Out: the comment
// with it, new, or the one that was made before. A comment counts as that only if it begins
// with its mark, and is by the author that the CI is: another one's is left alone, whatever it
// begins with.
//
// It speaks HTTP to the forge, and nothing else. A Thread may be used from any goroutine.
package forge
