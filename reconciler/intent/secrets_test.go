package intent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// secretCommit is a commit of one job that names one secret.
func secretCommit(commit, age string, opened *schema.Opened) schema.Compiled {
	job := schema.Job{Name: "web", User: "u", Cell: "local", Tasks: 1, Task: schema.TaskSpec{Process: schema.Process{Command: []string{"x"}}, Secrets: map[string]schema.TaskSecret{"key": {}}}}
	s := schema.Secret{Name: "key", User: "u", Cell: "local", Age: age}
	to := schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}
	from := schema.ObjectKey{Kind: schema.KindJob, Name: job.ID().String()}
	at := schema.Position{Path: "a/a.cue", Line: 1}
	p := &schema.Package{
		Dir: "a", Objects: schema.Objects{Jobs: []schema.Job{job}, Secrets: []schema.Secret{s}},
		Origins:    map[schema.ObjectKey]schema.Position{from: at, to: at},
		References: []schema.Reference{{From: from, Field: "task.secrets.key", To: to, At: at}},
	}
	if opened != nil {
		p.Opened = map[schema.ObjectKey]schema.Opened{to: *opened}
	}
	return schema.Compiled{Commit: commit, VersionKey: "sealed", Packages: []schema.CompiledPackage{{Dir: "a", Package: p, Digest: schema.DigestOf(p)}}}
}

// TestSecrets: a job gets the secret that it names, with the version that a master has
// found; what is known stays known to a master without keys, and what cannot be opened
// is refused.
func TestSecrets(t *testing.T) {
	t.Parallel()
	s := model.NewState("local")
	name := schema.JobName{Cell: "local", User: "u", Job: "web"}
	adopt := func(c schema.Compiled) intent.DesiredJob {
		t.Helper()
		a := intent.Adopt(s, intent.Of(s), c, time.Time{})
		if err := s.Apply(a.Writes); err != nil {
			t.Fatal(err)
		}
		return intent.Of(s).Jobs[name]
	}
	sealedIn := func(j intent.DesiredJob) schema.SealedSecret {
		t.Helper()
		if j.Job == nil || j.Job.Task.Secrets["key"].Sealed == nil {
			t.Fatalf("%+v has no secret", j)
		}
		return *j.Job.Task.Secrets["key"].Sealed
	}
	first := adopt(secretCommit("1", "a", &schema.Opened{Version: "v1"}))
	if got, want := sealedIn(first), (schema.SealedSecret{Version: "v1", Age: "a"}); got != want || len(first.Refused) > 0 {
		t.Errorf("%+v, refused %v; want %+v", got, first.Refused, want)
	}
	if s.Secrets.VersionKey != "sealed" {
		t.Errorf("the key is stored as %q", s.Secrets.VersionKey)
	}
	again := adopt(secretCommit("2", "b", &schema.Opened{Version: "v1"}))
	if change, _ := intent.Diff(first.Job, again.Job); change != intent.InPlace {
		t.Errorf("sealed again: %q", change)
	}
	keyless := adopt(secretCommit("3", "b", &schema.Opened{Trouble: "no identity"}))
	if change, _ := intent.Diff(again.Job, keyless.Job); change != intent.Unchanged || len(keyless.Refused) > 0 {
		t.Errorf("the same, with a master that has no key: %q, refused %v", change, keyless.Refused)
	}
	if unknown := adopt(secretCommit("4", "b", nil)); sealedIn(unknown).Version != "v1" {
		t.Errorf("the same, as a plan sees it: %+v", sealedIn(unknown))
	}
	held := adopt(secretCommit("5", "c", &schema.Opened{Trouble: "no identity", Hint: "give one"}))
	if len(held.Refused) != 1 || !strings.Contains(held.Refused[0].Message, `secret "key" cannot be opened: no identity`) || held.Refused[0].Hint != "give one" || held.Refused[0].Rule != schema.RuleSecret {
		t.Errorf("refused %+v", held.Refused)
	}
	opened := adopt(secretCommit("5", "c", &schema.Opened{Version: "v2"})) // by a master that has the key
	if change, _ := intent.Diff(first.Job, opened.Job); change != intent.Restart || len(opened.Refused) > 0 {
		t.Errorf("another plaintext: %q, refused %v", change, opened.Refused)
	}
}
