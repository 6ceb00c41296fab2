package cni

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// record is what is on disk of a network.
type record struct {
	Key  string `json:"key"`
	Task string `json:"task"` // in words, for errors
	// Config is the list of plugins as they were called, and Ranges what they may give addresses of.
	Config json.RawMessage `json:"config"`
	Ranges []addressRange  `json:"ranges"`
	// Addresses are those of a network that is complete; none before that.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// addressRange is what the plugin host-local, and others with the capability ipRanges, take as one.
type addressRange struct {
	Subnet     netip.Prefix `json:"subnet"`
	RangeStart netip.Addr   `json:"rangeStart"`
	Gateway    netip.Addr   `json:"gateway"`
}

// rangeOf leaves the first address of a subnet to the agent, and the second to the plugins' gateway.
func rangeOf(subnet netip.Prefix) addressRange {
	gateway := subnet.Addr().Next().Next()
	return addressRange{subnet, gateway.Next(), gateway}
}

func (r *addressRange) has(a netip.Addr) bool { return r.Subnet.Contains(a) && !a.Less(r.RangeStart) }

// letters are those of names in which case does not count.
var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

func short(n int, texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return strings.ToLower(letters.EncodeToString(sum[:]))[:n]
}

// listOf returns the configuration of plugins as a list of CNI, of a network with that name.
func listOf(name string, c *schema.CNI) json.RawMessage {
	return schema.Canonical(struct {
		schema.CNI
		Name string `json:"name"`
	}{*c, name})
}

// list returns the plugins of a record.
func (r *record) list() (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(r.Config)
	if err != nil {
		return nil, fmt.Errorf("plugins of CNI: %w", err)
	}
	return list, nil
}

// write puts a record on disk, before and after.
func (r *record) write(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, b, 0o600)
}

// readRecord reads a record from disk.
func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	r := &record{}
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
