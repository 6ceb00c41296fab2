package model

// Floor is the highest generation, and epoch, that may have been given by a
// master whose store was lost; 0 in a cell that was never restored.
func (s *State) Floor() uint64 {
	if s.Restored == nil {
		return 0
	}
	return s.Restored.Floor
}

// Recovering reports whether the cell was restored and its machines have not been
// heard for long enough. No machine may be told anything until that is over: it
// would stop what the state does not know.
func (s *State) Recovering() bool { return s.Restored != nil && s.Restored.Settled.IsZero() }
