package linktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/schema"
)

// sealer seals what it can, and counts.
type sealer struct {
	mu     sync.Mutex
	count  int
	cannot map[string]error // by version
}

func (s *sealer) SealFor(of *schema.SealedSecret, recipient string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cannot[of.Version]; err != nil {
		return "", err
	}
	s.count++
	return fmt.Sprintf("%s for %s, %d", of.Age, recipient, s.count), nil
}

// secretive is a task that names secrets of those versions.
func secretive(job string, generation uint64, versions ...string) schema.Assignment {
	a := task(job, generation)
	j := *a.Job
	j.Task.Secrets = map[string]schema.TaskSecret{}
	for _, v := range versions {
		j.Task.Secrets["s-"+v] = schema.TaskSecret{Sealed: &schema.SealedSecret{Version: v, Age: "age of " + v}}
	}
	a.Job, a.Data = &j, schema.DigestOf(&j)
	return a
}

// TestSecrets: a machine is sent the secrets that its jobs name and no others, sealed for
// it, each once in a session; one that cannot be sealed is said, and tried again.
func TestSecrets(t *testing.T) {
	t.Parallel()
	path, m, a := socket(t), newMaster(), newAgent("m1")
	a.info.Recipient = "age1m1"
	seal := &sealer{cannot: map[string]error{"v2": errors.New("it has gone")}}
	s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: never, Secrets: seal})
	_, stop := run(t, path, agentlink.Config{Agent: a})
	version := uint64(0)
	assign := func(want map[string]schema.MachineSecret, view ...schema.Assignment) {
		t.Helper()
		version++
		m.push(s, version, view)
		eventually(t, "the view", func() bool { v, _ := a.has(); return v == version })
		a.set(func() {
			if d := cmp.Diff(want, a.view.Secrets); d != "" {
				t.Errorf("view %d: secrets (-want +got)\n%s", version, d)
			}
		})
	}
	one := schema.MachineSecret{Sealed: "age of v1 for age1m1, 1"}
	assign(map[string]schema.MachineSecret{"v1": one, "v2": {Refused: "it has gone"}}, secretive("web", 1, "v1", "v2"))
	assign(map[string]schema.MachineSecret{"v1": one, "v2": {Refused: "it has gone"}}, secretive("db", 2, "v1"), secretive("web", 1, "v1", "v2"))
	seal.mu.Lock()
	clear(seal.cannot)
	seal.mu.Unlock()
	assign(map[string]schema.MachineSecret{"v1": one, "v2": {Sealed: "age of v2 for age1m1, 2"}}, secretive("web", 1, "v1", "v2"))
	assign(nil, task("web", 3))
	assign(map[string]schema.MachineSecret{"v1": {Sealed: "age of v1 for age1m1, 3"}}, secretive("web", 4, "v1"))
	stop()
	eventually(t, "that the machine left", func() bool { return slices.Equal(m.gone(), []uint64{1}) })
	run(t, path, agentlink.Config{Agent: a})
	eventually(t, "all again, in the next session", func() bool {
		has := map[string]schema.MachineSecret{}
		a.set(func() { maps.Copy(has, a.view.Secrets) })
		return a.seen() == 2 && has["v1"].Sealed == "age of v1 for age1m1, 4"
	})
}

// TestSecretsRefused: who could hold them is sent why there are none; who cannot may not know the message.
func TestSecretsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		recipient string
		sealer    masterlink.Sealer
		want      string
	}{
		"no recipient": {"", &sealer{}, ""},
		"no identity":  {"age1m1", nil, "this master has no identity that opens the cell's secrets: muster master --secret-identity FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, m, a := socket(t), newMaster(), newAgent("m1")
			a.info.Recipient = c.recipient
			s, _ := serve(t, path, masterlink.Config{Master: m, PullEvery: time.Second, Secrets: c.sealer})
			run(t, path, agentlink.Config{Agent: a})
			m.push(s, 1, []schema.Assignment{secretive("web", 1, "v1")})
			eventually(t, "the view", func() bool { v, _ := a.has(); return v == 1 })
			a.set(func() {
				if got := a.view.Secrets["v1"]; got.Sealed != "" || got.Refused != c.want {
					t.Errorf("%+v, want %q", got, c.want)
				}
			})
		})
	}
}
