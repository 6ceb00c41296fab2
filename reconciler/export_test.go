package reconciler

// DesiredNow has the state compute what its head declares, which it keeps.
func DesiredNow(s *State) { s.desired() }
