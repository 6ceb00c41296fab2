package schema

// The numeric users that agents give to the owners of tasks, both included, unless
// configured otherwise. They lie between what login accounts and what user
// namespaces are given by Debian's and systemd's defaults.
const (
	FirstTaskUser = 70_000
	LastTaskUser  = 99_999
)

// The users that containers have beside their owner's: ContainerUsers of them for each
// owner, from FirstContainerUser on, and all below 1 << 31.
const (
	ContainerUsers     = 1 << 16
	FirstContainerUser = 1 << 21
	LastContainerUser  = FirstContainerUser + (LastTaskUser-FirstTaskUser+1)*ContainerUsers - 1
)

// IsTaskUser reports whether a numeric user is one of those that agents run tasks as,
// unless configured otherwise: an owner's, or one of its containers'.
func IsTaskUser(uid uint32) bool {
	return uid >= FirstTaskUser && uid <= LastTaskUser || uid >= FirstContainerUser && uid <= LastContainerUser
}
