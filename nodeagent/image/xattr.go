package image

import (
	"archive/tar"
	"maps"
	"slices"
	"strings"
)

// paxXattr begins the name of a PAX record that is an extended attribute.
const paxXattr = "SCHILY.xattr."

// xattrs sets the extended attributes of a header that mean the same on another
// machine:
//
//   - user.*, security.capability and the POSIX ACLs are kept;
//   - what overlayfs reads (trusted.overlay.*, user.overlay.*) is refused: with it a
//     layer could say that its directory is another one, or its file's content that
//     of another, and no builder writes it into a tar;
//   - other trusted.*, security.* (labels, signatures) and system.* are dropped: they
//     are of the machine on which the image was built, and no container could set them.
func (u *unpacker) xattrs(h *tar.Header, set func(name string, value []byte) error) error {
	if len(h.PAXRecords) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(h.PAXRecords)) {
		name, ok := strings.CutPrefix(key, paxXattr)
		if !ok {
			continue
		}
		if overlaid(name) {
			return u.invalid(h.Name, "it has the extended attribute %.100q, which overlayfs itself reads", name)
		}
		if !portable(name) {
			continue
		}
		if err := set(name, []byte(h.PAXRecords[key])); err != nil {
			return err
		}
	}
	return nil
}

// overlaid reports whether overlayfs interprets an attribute.
func overlaid(name string) bool {
	return strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.")
}

// portable reports whether an attribute is kept.
func portable(name string) bool {
	switch name {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(name, "user.") && !overlaid(name)
}
