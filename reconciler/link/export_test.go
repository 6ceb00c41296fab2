package link

// MaxJoining is maxJoining.
const MaxJoining = maxJoining
