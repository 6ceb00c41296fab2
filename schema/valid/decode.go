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
// its kind. In place of a priority that a job or an alloc set has by name it
// leaves schema.PriorityNamed. It errs when the types of package schema have no place
// for a field.
func Append(o *schema.Objects, kind schema.Kind, data []byte) error {
	switch kind {
	case schema.KindCell:
		return decode(&o.Cells, data)
	case schema.KindMachine:
		return decode(&o.Machines, data)
	case schema.KindPriority:
		return decode(&o.Priorities, data)
	case schema.KindTenant:
		return decode(&o.Tenants, data)
	case schema.KindQuota:
		return decode(&o.Quotas, data)
	case schema.KindSecret:
		return decode(&o.Secrets, data)
	case schema.KindService:
		return decode(&o.Services, data)
	case schema.KindAllocSet:
		return appendAllocSet(&o.AllocSets, data)
	case schema.KindJob:
		return appendJob(&o.Jobs, data)
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

// namedJob is a job as Object returns it. Its priority hides the job's own.
type namedJob struct {
	schema.Job
	Priority nameOrNumber `json:"priority"`
}

type nameOrNumber schema.Priority

// UnmarshalJSON takes a number as it is, and a name as schema.PriorityNamed.
func (p *nameOrNumber) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*p = nameOrNumber(schema.PriorityNamed)
		return nil
	}
	return json.Unmarshal(b, (*schema.Priority)(p))
}

func appendJob(list *[]schema.Job, data []byte) error {
	var jobs []namedJob
	if err := decode(&jobs, data); err != nil {
		return err
	}
	j := jobs[0].Job
	if j.Priority = schema.Priority(jobs[0].Priority); j.AllocSet != "" {
		j.Priority = schema.PriorityNamed // by the set
	}
	*list = append(*list, j)
	return nil
}

// namedAllocSet is to an alloc set what namedJob is to a job.
type namedAllocSet struct {
	schema.AllocSet
	Priority nameOrNumber `json:"priority"`
}

func appendAllocSet(list *[]schema.AllocSet, data []byte) error {
	var sets []namedAllocSet
	if err := decode(&sets, data); err != nil {
		return err
	}
	s := sets[0].AllocSet
	s.Priority = schema.Priority(sets[0].Priority)
	*list = append(*list, s)
	return nil
}
