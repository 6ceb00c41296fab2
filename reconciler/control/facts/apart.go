package facts

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// Apart returns the jobs from which those of a job are kept apart now, sorted.
func (f *Facts) Apart(job schema.JobName) (out []schema.JobName) {
	r := f.Job(job)
	if r == nil {
		return nil
	}
	for i := range r.Apart {
		if Ahead(f.Now, r.Apart[i].Until, ApartFor) {
			out = append(out, r.Apart[i].Job)
		}
	}
	slices.SortFunc(out, schema.JobName.Compare)
	return out
}
