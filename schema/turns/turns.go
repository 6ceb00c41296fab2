package turns

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Env names the environment variable that says which steps a walk takes: "K/N"
// are those that leave K when they are divided by N, so that runs with each K from
// 0 to N-1 take all. Without it each run takes all.
const Env = "MUSTER_TEST_WALK"

// Takes reports whether a test that walks through all steps of something, and plays
// a history for each, plays that of this step, from 0 on. It panics if the variable
// holds anything else: such a walk would take none.
func Takes(step int) bool {
	value, set := os.LookupEnv(Env)
	if !set || value == "" {
		return true
	}
	first, every, _ := strings.Cut(value, "/")
	k, kerr := strconv.Atoi(first)
	n, nerr := strconv.Atoi(every)
	if kerr != nil || nerr != nil || k < 0 || k >= n {
		panic(fmt.Sprintf("%s=%q: want K/N with K from 0 to N-1", Env, value))
	}
	return step%n == k
}
