package valid

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhq/muster/schema"
)

// The bounds of a list of plugins, whose configuration all machines are sent.
const (
	maxPlugins     = 16
	maxPluginBytes = 16 << 10 // as JSON
)

var cniRule = &Rule{
	Type: Struct,
	Fields: []Field{
		{Name: "cniVersion", Rule: &Rule{Type: Enum, Words: []string{"0.4.0", "1.0.0", "1.1.0"}}, Default: schema.DefaultCNIVersion},
		{Name: "plugins", Required: true, Rule: &Rule{Type: List, Min: 1, Max: maxPlugins, Elem: &Rule{Type: Free, Max: maxPluginBytes}}},
		{Name: "disableCheck", Rule: &Rule{Type: Bool}, Default: false},
	},
	Never: map[string]string{
		"name":                   "each agent names its network itself, so that two on one machine do not take each other's addresses",
		"cniVersions":            "there is one version, cniVersion",
		"disableGC":              "plugins collect garbage of the network of this agent alone",
		"loadOnlyInlinedPlugins": "all plugins are in the list: no files of the machine are read",
	},
	Alias: map[string]string{"version": "cniVersion", "plugin": "plugins", "type": "plugins", "ipam": "plugins"},
}

// cniProblems returns what is wrong with the plugins of a cell's network.
func cniProblems(network map[string]any) problems {
	cni, ok := network["cni"].(map[string]any)
	if !ok {
		return nil
	}
	var found problems
	if !prefixOf(network, "range").IsValid() && !prefixOf(network, "range6").IsValid() {
		found.add(Problem{
			Rule: schema.RuleNoEffect, Path: []string{"network", "cni"}, Key: true, Message: "cni has no effect without range or range6: machines have no addresses for their plugins to give",
			Hint: `add range: "10.64.0.0/12", or remove cni`,
		})
	}
	plugins, _ := cni["plugins"].([]any)
	for i, p := range plugins {
		plugin, _ := p.(map[string]any)
		if plugin == nil {
			continue // which is reported
		}
		at := []string{"network", "cni", "plugins", strconv.Itoa(i)}
		found.pluginType(at, plugin, true)
		for _, inner := range []string{"ipam", "delegate"} {
			if under, ok := plugin[inner].(map[string]any); ok {
				found.pluginType(append(slices.Clone(at), inner), under, false)
			}
		}
		for _, name := range []string{"name", "cniVersion", "prevResult", "runtimeConfig"} {
			if _, ok := plugin[name]; ok {
				found.add(Problem{
					Rule: schema.RuleNoEffect, Path: append(slices.Clone(at), name), Key: true, Message: fmt.Sprintf("%s is given to the plugin by the agent", name),
					Hint: fmt.Sprintf("remove the field %q", name),
				})
			}
		}
	}
	return found
}

const pluginGrammar = `the name of a plugin's program: 1 to 51 letters, digits and inner . _ -, such as "bridge"`

// pluginType checks the field that names the program of a plugin, which a plugin must have, and what it
// delegates to may have.
func (p *problems) pluginType(path []string, plugin map[string]any, required bool) {
	v, there := plugin["type"]
	s, isText := v.(string)
	at := append(slices.Clone(path), "type")
	switch {
	case !there && required:
		p.add(Problem{Rule: schema.RuleMissingField, Path: at, Missing: true, Message: `required field "type" is missing`, Expected: pluginGrammar})
	case there && !isText:
		p.add(Problem{Rule: schema.RuleWrongType, Path: at, Message: "is not a string", Expected: pluginGrammar})
	case there && !schema.IsCNIType(s):
		p.add(Problem{Rule: schema.RuleInvalidValue, Path: at, Message: fmt.Sprintf("invalid value %.80q", s), Expected: pluginGrammar})
	}
}
