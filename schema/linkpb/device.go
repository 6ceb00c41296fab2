package linkpb

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

func decodeDeviceGroups(groups []*DeviceGroup) ([]schema.DeviceGroup, error) {
	var out []schema.DeviceGroup
	for _, g := range groups {
		d := schema.DeviceGroup{Kind: g.GetKind(), Model: g.GetModel(), Count: int(g.GetCount()), Attributes: g.GetAttributes()}
		out = append(out, d)
	}
	return out, schema.CheckDevices(out)
}

func encodeDevices(devices []schema.DeviceUse) []*DeviceUse {
	var out []*DeviceUse
	for _, d := range devices {
		out = append(out, &DeviceUse{Kind: d.Kind, Index: uint32(d.Index), Milli: uint32(d.Milli)})
	}
	return out
}

func decodeDevices(devices []*DeviceUse) ([]schema.DeviceUse, error) {
	var out []schema.DeviceUse
	for _, p := range devices {
		d := schema.DeviceUse{Kind: p.GetKind(), Index: int(p.GetIndex()), Milli: int(p.GetMilli())}
		if schema.CheckName(d.Kind) != nil || d.Index >= schema.MaxDevices || d.Milli < 1 || d.Milli > schema.DeviceMilli {
			return nil, fmt.Errorf("%d thousandths of device %d of kind %.80q: want an index below %d and 1 to %d", d.Milli, d.Index, d.Kind, schema.MaxDevices, schema.DeviceMilli)
		}
		out = append(out, d)
	}
	return out, nil
}
