package schema_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"10.1.2.3", "127.0.0.1", "2001:db8::7"} {
		if err := schema.CheckAddress(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "host", "10.1.2", "10.1.2.3:80", "0.0.0.0", "::", "224.0.0.1", "2001:DB8::7", "fe80::1%eth0", "::ffff:10.1.2.3"} {
		if err := schema.CheckAddress(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
