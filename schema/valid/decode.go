package valid

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/musterhq/muster/schema"
)

// Parse decodes JSON into what Object takes. It errs when data is not exactly
// one JSON value.
func Parse(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("decode object: more than one value")
	}
	return v, nil
}

// Append decodes what Object returned, as JSON, and appends it to the list of
// its kind. It errs when the types of package schema have no place for a field.
func Append(o *schema.Objects, kind schema.Kind, data []byte) error {
	switch kind {
	case schema.KindCell:
		return decode(&o.Cells, data)
	case schema.KindTenant:
		return decode(&o.Tenants, data)
	case schema.KindQuota:
		return decode(&o.Quotas, data)
	case schema.KindJob:
		return decode(&o.Jobs, data)
	}
	return fmt.Errorf("decode object: unknown kind %q", kind)
}

func decode[T any](list *[]T, data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var v T
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	*list = append(*list, v)
	return nil
}
