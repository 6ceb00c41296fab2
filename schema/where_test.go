package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0": "0 false", "40": "40 false", "40Gi": "42949672960 true", "41G": "41000000000 true", "3K": "3000 true", "3Ki": "3072 true", "8191Pi": "9222246136947933184 true",
		"8192Pi": "no", "9223372036854775808": "no", "": "no", "Gi": "no", "-1Gi": "no", "+1": "no", "1.5Gi": "no", "40 Gi": "no", "40GiB": "no", "40gi": "no", "1_0": "no", "5KM": "no", "1Ei": "no",
	} {
		got := "no"
		if n, unit, ok := schema.ParseAmount(text); ok {
			got = fmt.Sprint(n, unit)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCheckDevices(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range schema.MaxDeviceAttributes + 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	of := func(attributes map[string]string) []schema.DeviceGroup {
		return []schema.DeviceGroup{{Kind: "gpu", Count: 1, Attributes: attributes}}
	}
	for _, c := range []struct {
		devices []schema.DeviceGroup
		want    string
	}{
		{of(nil), ""},
		{of(map[string]string{"memory": "80Gi", "numa": "0", "link": "a"}), ""},
		{of(map[string]string{"memory": "80GB"}), `memory "80GB" of a gpu: want bytes, such as 80Gi`},
		{of(map[string]string{"numa": ""}), "the attribute numa of a gpu has no value"},
		{of(map[string]string{"a b": "x"}), `attribute of a gpu: label "a b"`},
		{of(many), "a gpu has 17 attributes: want at most 16"},
		{[]schema.DeviceGroup{{Kind: "gpu", Count: 0}}, "0 devices of kind gpu"},
		{[]schema.DeviceGroup{{Kind: "gpu", Count: 200}, {Kind: "gpu", Count: 57}}, "257 devices of kind gpu"},
	} {
		err := schema.CheckDevices(c.devices)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.devices, err, c.want)
		}
	}
}
