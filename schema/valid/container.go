package valid

import (
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

func matchImage(s string) string {
	if _, err := schema.ParseImageRef(s); err != nil {
		return schema.ImageGrammar
	}
	return ""
}

// imageProblem says what is wrong with an image, and what to do.
func imageProblem(s string) (message, hint string) {
	if _, err := schema.ParseImageRef(s); err != nil {
		return schema.HintOf(err)
	}
	return "", ""
}

// taggedImage returns s if it is an image that lacks nothing but the digest of its tag, else "".
func taggedImage(s string) string {
	if r, err := schema.ParseImageTag(s); err != nil || r.Tag == "" || r.Digest != "" {
		return ""
	}
	return s
}

const (
	containerUserGrammar = "USER or USER:GROUP, each a name of at most 32 bytes or a number from 0 to 65535"
	maxContainerUser     = 32 + 1 + 32 // as useradd has it, of user and group
)

var containerName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)

func matchContainerUser(s string) string {
	user, group, has := strings.Cut(s, ":")
	if !isContainerID(user) || has && !isContainerID(group) {
		return containerUserGrammar
	}
	return ""
}

// isContainerID reports whether s is the name or the number of a user or group.
func isContainerID(s string) bool {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return n <= schema.MaxContainerID && strconv.FormatUint(n, 10) == s
	}
	return containerName.MatchString(s)
}
