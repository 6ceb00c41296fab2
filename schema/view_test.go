package schema_test

import (
	"maps"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestViewNewer(t *testing.T) {
	t.Parallel()
	v := &schema.View{Epoch: 2, Version: 5}
	for _, tt := range []struct {
		o    *schema.View
		want bool
	}{
		{nil, true},
		{&schema.View{Epoch: 1, Version: 9}, true},
		{&schema.View{Epoch: 2, Version: 4}, true},
		{&schema.View{Epoch: 2, Version: 5}, false},
		{&schema.View{Epoch: 2, Version: 6}, false},
		{&schema.View{Epoch: 3, Version: 1}, false},
	} {
		if got := v.Newer(tt.o); got != tt.want {
			t.Errorf("%+v newer than %+v: %t, want %t", v, tt.o, got, tt.want)
		}
	}
}

func TestViewJobs(t *testing.T) {
	t.Parallel()
	web, db := &schema.Job{Name: "web"}, &schema.Job{Name: "db"}
	v := schema.View{Assignments: []schema.Assignment{{Data: "d", Job: db}, {Data: "w", Job: web}, {Data: "w", Job: web}}}
	yielded := 0
	for range v.Jobs() {
		yielded++
	}
	if got := maps.Collect(v.Jobs()); yielded != 2 || got["d"] != db || got["w"] != web {
		t.Errorf("%d jobs: %v", yielded, got)
	}
}
