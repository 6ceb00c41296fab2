// Package fswatch reports that something has changed in directories: any number of the
// system's events between two looks are one signal.
//
// In: directories. Out: a channel that holds one signal. A Watcher has one
// goroutine, which ends with Close; its methods may be called from anywhere.
//
// It never says what has changed: its caller reads all of them again.
package fswatch
