// Package demo shows a whole cell doing its main job, and checks each thing
// that it says: a commit becomes running tasks, a second one changes only what
// it must, what dies comes back, what is wrong is refused, the master may be
// killed, and what is removed leaves nothing behind.
//
// In: a directory with the three binaries. Out: words on Talk, and an error
// that names the step and what did not hold. The master and the agent are real
// processes, the tasks too; nothing here knows how they work inside. `muster
// demo` runs it with words, the end-to-end test without.
package demo
