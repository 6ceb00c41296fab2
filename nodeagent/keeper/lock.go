package keeper

import "github.com/musterhq/muster/schema/filelock"

// claim takes the lock of an incarnation's directory. Closing it gives it back, and so
// does the holder's death: no child inherits it. The error is filelock.ErrHeld when a
// living keeper has it.
//
// The directory itself is locked, and the file LockFile in it: that is what keepers of
// earlier releases have, and what there is where directories cannot be locked (NFS).
func claim(dir string) (*filelock.Lock, error) {
	return filelock.Take(filelock.Config{Dir: dir, File: LockFile, Whole: true})
}

// look is claim for an agent, which makes no LockFile: that there is one says that a
// keeper has had the lock.
func look(dir string) (*filelock.Lock, error) {
	return filelock.Take(filelock.Config{Dir: dir, File: LockFile, Whole: true, Look: true})
}
