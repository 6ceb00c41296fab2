// Package directory holds a machine's naming.Directory while its agent runs: changes come in from the
// link, and readers have snapshots, without waiting for each other.
//
// Those who act on changes, such as the rules of services, follow it (Follow): they get what has
// been touched since they last looked, however many changes that were, so that a slow one is not
// behind by more than one turn.
//
// It is on the machine's disk, too, in shards: Run writes those that have changed, each at most once in
// some seconds, and Open reads them, so that names are found by an agent that starts while no master
// answers. What could not be read or is out of date is sent again by the next master, which
// compares digests. All methods may be called from any goroutine.
package directory
