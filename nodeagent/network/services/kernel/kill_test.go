package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/network/services"
	"github.com/musterhq/muster/nodeagent/network/services/kernel"
	"github.com/musterhq/muster/nodeagent/network/services/servicestest"
)

// seedVariable makes the test's program one that programs services until it is killed.
const seedVariable = "MUSTER_TEST_PROGRAM_SEED"

func TestMain(m *testing.M) {
	if seed := os.Getenv(seedVariable); seed != "" {
		if err := programForever(seed); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// history is a sequence of wanted services.
type history struct {
	r      *rand.Rand
	wanted map[string]*services.Service
}

func newHistory(seed uint64) *history {
	return &history{rand.New(rand.NewPCG(seed, 1)), map[string]*services.Service{}}
}

func (h *history) next(p servicestest.Planner) {
	for range 30 {
		servicestest.Step(h.r, 40, h.wanted, p)
	}
}

// programForever says which change it is about to make, and makes it.
func programForever(seed string) error {
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	h, p := newHistory(n), kernel.New("one")
	for i := 1; ; i++ {
		h.next(planned{p})
		fmt.Println(i)
		if _, err := p.Program(); err != nil {
			return err
		}
	}
}

// nobody takes services and forgets them.
type nobody struct{}

func (nobody) Set(*services.Service) {}
func (nobody) Remove(string)         {}

func TestKilledWhileProgramming(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.do(t, func() error {
		for seed := range uint64(8) {
			if err := killed(seed); err != nil {
				return fmt.Errorf("seed %d: %w", seed, err)
			}
		}
		return nil
	})
}

// killed kills a program between the moment it says that it begins with some change and the
// next, and compares what the kernel has with what that change and the one before asked for.
func killed(seed uint64) error {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(seedVariable, "=", seed))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil { // in the namespace of this thread
		return err
	}
	lines := bufio.NewScanner(out)
	last := 0
	for lines.Scan() {
		if last, err = strconv.Atoi(strings.TrimSpace(lines.Text())); err != nil {
			break
		}
		if last == int(seed)%5+1 {
			err = cmd.Process.Kill()
		}
	}
	if err := errors.Join(err, ignoreExit(cmd.Wait())); err != nil {
		return err
	}
	have, err := kernel.Read("one")
	if err != nil {
		if last == 1 && seed == 0 {
			return nil // the table was not there before
		}
		return err
	}
	h := newHistory(seed)
	for range last - 1 {
		h.next(nobody{})
	}
	before := servicestest.Check(have, h.wanted)
	h.next(nobody{})
	after := servicestest.Check(have, h.wanted)
	if before != nil && after != nil && last > 1 {
		return fmt.Errorf("killed at change %d, the kernel has neither\n%w\nnor\n%w", last, before, after)
	}
	return nil
}

func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
