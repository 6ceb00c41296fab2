// Package linktest tests the two ends of the agent link against each other,
// over a real unix socket. It holds no code: reconciler/link and
// nodeagent/link may not import each other, so neither can hold these tests.
package linktest
