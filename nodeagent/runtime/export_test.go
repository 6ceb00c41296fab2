package runtime

// GroupsName lets tests find what a Runtime may leave behind.
var GroupsName = groupsName
