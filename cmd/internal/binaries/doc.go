// Package binaries gives tests the three binaries as users have them: built,
// beside each other, where tasks of any user may run them.
//
// In: the module that the test is part of. Out: a directory that is removed
// when the test process ends its tests (see Main). It is for tests alone.
package binaries
