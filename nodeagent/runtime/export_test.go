package runtime

// GroupsName lets tests find what a Runtime may leave behind.
var GroupsName = groupsName

// ParseCores lets tests read the kernel's lists of cores.
var ParseCores = parseCores
