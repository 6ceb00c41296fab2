package git

import "time"

// LimitPack sets what a fetch may take, in bytes.
func (r *Repo) LimitPack(n int64) { r.remote.maxPack = n }

// Pause is pause.
func (r *Repo) Pause(failed int, trouble error) time.Duration { return r.pause(failed, trouble) }
