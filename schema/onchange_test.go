package schema_test

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestOnChange(t *testing.T) {
	t.Parallel()
	for o, want := range map[schema.OnChange]bool{
		"": false, schema.ChangeRestart: false, schema.ChangeSignal: true, schema.ChangeNone: true,
	} {
		if got := o.InPlace(); got != want {
			t.Errorf("%q is in place: %v, want %v", o, got, want)
		}
	}
	if got := schema.ChangeSignal.SignalNamed(""); got != schema.DefaultChangeSignal {
		t.Errorf("sends %s", got)
	}
	if got := schema.ChangeSignal.SignalNamed("SIGUSR1"); got != "SIGUSR1" {
		t.Errorf("sends %s", got)
	}
	if got := schema.ChangeNone.SignalNamed("SIGUSR1"); got != "" {
		t.Errorf("sends %s", got)
	}
	signals := schema.ChangeSignals()
	if !slices.Contains(signals, schema.DefaultChangeSignal) || slices.Contains(signals, "SIGKILL") || slices.Contains(signals, "SIGTERM") {
		t.Errorf("signals %q", signals)
	}
}
