package schema

// The numeric users that agents give to the owners of tasks, both included, unless
// configured otherwise. They lie between what login accounts and what user
// namespaces are given by Debian's and systemd's defaults.
const (
	FirstTaskUser = 70_000
	LastTaskUser  = 99_999
)
