package schema

import (
	"encoding/json"
	"regexp"
	"slices"
)

// CNI is the configuration of plugins of CNI, which make the networks of tasks, one after the other.
type CNI struct {
	// CNIVersion is the version of the specification that plugins are spoken to by.
	CNIVersion string `json:"cniVersion"`
	// Plugins are objects of JSON as the plugins take them, without what the agent puts in.
	Plugins []json.RawMessage `json:"plugins"`
	// DisableCheck has plugins not be asked whether a network is still whole.
	DisableCheck bool `json:"disableCheck"`
}

// DefaultCNIVersion is the version that plugins of 2022 and later know.
const DefaultCNIVersion = "1.0.0"

// HasCNI begins the attributes of a machine that say which plugins of CNI it has: what follows is the
// name of the plugin's program, and the value "true".
const HasCNI = "network.cni."

// cniType leaves room for HasCNI in the key of a label.
var cniType = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,49}[A-Za-z0-9])?$`)

// IsCNIType reports whether s can be the name of a plugin's program.
func IsCNIType(s string) bool { return cniType.MatchString(s) }

// Types returns the names of the programs that the plugins are, with those for addresses and those that
// they delegate to, sorted, each once; c may be nil.
func (c *CNI) Types() []string {
	if c == nil {
		return nil
	}
	var out []string
	for _, raw := range c.Plugins {
		type part struct {
			Type string `json:"type"`
		}
		var p struct {
			part
			IPAM     part `json:"ipam"`
			Delegate part `json:"delegate"`
		}
		if json.Unmarshal(raw, &p) != nil {
			continue // it was checked when it was declared
		}
		for _, s := range []string{p.Type, p.IPAM.Type, p.Delegate.Type} {
			if IsCNIType(s) {
				out = append(out, s)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
