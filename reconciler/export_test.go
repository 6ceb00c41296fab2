package reconciler

import "github.com/musterhq/muster/schema"

// DesiredNow has the state compute what its head declares, which it keeps.
func DesiredNow(s *State) { s.desired() }

// MayDisrupt is what a step is told that wants to stop one more task.
func MayDisrupt(in Input, job schema.JobName) bool {
	s := newStep(in)
	s.surveyMachines()
	return s.mayDisrupt(job)
}
