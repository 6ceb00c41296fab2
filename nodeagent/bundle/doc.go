// Package bundle makes containers: it puts the root directory of an image together and has
// an OCI runtime do the rest.
//
// In: the directories of an image, how its users are the machine's, and the runtime's
// config.json. Out: the first process of the container. On the machine there is nothing of
// it but that process: the bundle, the state of the runtime and all mounts are in a mount
// namespace that ends with the container, whoever is killed.
//
// The files of the image belong to the container's users by idmapped mounts, for which
// Linux 5.19 is needed: a layer on the disk is shared by all containers of all owners.
//
// It is a part of the keeper, of which there are many: it links the standard library and
// golang.org/x/sys alone. It must not touch cgroups, in which the container's own init is.
package bundle
