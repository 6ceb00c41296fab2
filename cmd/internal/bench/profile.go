package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// Profiles are named after the load that they are of. Those of the hollow machines begin
// with fleetPrefix, the others are the master's.
const (
	cpuProfile      = "cpu"
	heapProfile     = "heap" // of what is in use after a load
	goroutines      = "goroutine"
	fleetPrefix     = "machines-"
	profileSeconds  = 10
	profileDuration = profileSeconds * time.Second
)

// profile takes profiles of the master and of the machines, if they are wanted, until stop
// is called.
func (c *cell) profile(ctx context.Context, name string) (stop func()) {
	if c.cfg.Profiles == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{}, 2)
	go func() {
		// Of that length at most: one that is cut off cannot be read.
		err := c.fetch(ctx, fmt.Sprintf("profile?seconds=%d", profileSeconds), name+"-"+cpuProfile)
		if err == nil {
			err = c.fetch(ctx, heapProfile+"?gc=1", name+"-"+heapProfile)
		}
		c.without(name, err)
		done <- struct{}{}
	}()
	go func() {
		c.without(name, c.profileMachines(ctx, name))
		done <- struct{}{}
	}()
	return func() {
		<-done
		<-done
		cancel()
	}
}

// without says that there is no profile of a load, and why.
func (c *cell) without(name string, err error) {
	if err != nil {
		fmt.Fprintln(c.cfg.Progress, "no profile of", name+":", err)
	}
}

// profileMachines takes a profile of this process, for as long as of the master.
func (c *cell) profileMachines(ctx context.Context, name string) error {
	var b bytes.Buffer
	if err := pprof.StartCPUProfile(&b); err != nil {
		return err
	}
	err := sleep(ctx, profileDuration)
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	return c.keep(fleetPrefix+name+"-"+cpuProfile, b.Bytes())
}

// stuck keeps what all goroutines do when a load has failed, if profiles are wanted.
func (c *cell) stuck(ctx context.Context, name string) error {
	if c.cfg.Profiles == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, profileDuration)
	defer cancel()
	if err := c.fetch(ctx, goroutines, name+"-"+goroutines); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := pprof.Lookup(goroutines).WriteTo(&b, 0); err != nil {
		return err
	}
	return c.keep(fleetPrefix+name+"-"+goroutines, b.Bytes())
}

// fetch writes a profile of the master into the directory of profiles.
func (c *cell) fetch(ctx context.Context, what, name string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.master.profiles+what, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return c.keep(name, b)
}

func (c *cell) keep(name string, profile []byte) error {
	if err := os.MkdirAll(c.cfg.Profiles, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.cfg.Profiles, name+".pprof"), profile, 0o600)
}
