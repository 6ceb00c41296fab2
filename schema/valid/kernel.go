package valid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// minKernelProcesses is the least limit of processes where the threads of a kernel in user
// space, and of its file server, count as the task's.
const minKernelProcesses = 128

// kernelProblems says what a task asks for that runsc does not have: its containers have a kernel
// of their own, which is given none of it by the machine. devices are where the task asks for some.
func kernelProblems(job, task map[string]any, devices [][]string) (found problems) {
	of, ok := kernelOf(task)
	if !ok {
		return nil
	}
	unsupported := func(path []string, key bool, message, expected string) {
		found = append(found, Problem{Rule: schema.RuleUnsupported, Path: path, Key: key, Message: "a container by runsc " + message, Expected: expected, Hint: "or remove " + of})
	}
	if _, inside := job["allocset"].(string); inside {
		unsupported([]string{"allocset"}, true, "shares no memory with the other tasks of an alloc", "no allocset")
	}
	for _, path := range devices {
		unsupported(path, true, "has no devices of the machine", "no devices")
	}
	if list, _ := addedOf(task); len(list) > 0 && !rootOfKernel(task) {
		unsupported([]string{"task", "capabilities", "add"}, false, "has capabilities added for its user 0 alone", `container.user: "0"`)
	}
	limits, _ := task["limits"].(map[string]any)
	if n, ok := wholeNumber(limits["coreBytes"]); ok && n > 0 {
		unsupported([]string{"task", "limits", "coreBytes"}, false, "writes no core files", "0")
	}
	if n, ok := wholeNumber(limits["processes"]); ok && n < minKernelProcesses {
		found = append(found, Problem{
			Rule: schema.RuleOutOfRange, Path: []string{"task", "limits", "processes"}, Message: fmt.Sprintf("%d are too few for a container by runsc: its kernel's threads are counted, too", n),
			Expected: fmt.Sprintf("at least %d", minKernelProcesses),
		})
	}
	return found
}

// rootOfKernel reports whether each container by runsc may run as its user 0: it says so, or leaves it to
// its image.
func rootOfKernel(task map[string]any) bool {
	list, _ := task["before"].([]any)
	return !slices.ContainsFunc(append(list[:len(list):len(list)], any(task)), func(x any) bool {
		runs, _ := x.(map[string]any)
		container, _ := runs["container"].(map[string]any)
		user, said := container["user"].(string)
		name, _, _ := strings.Cut(user, ":")
		return container["runtime"] == string(schema.Runsc) && said && name != "0" && name != "root"
	})
}

// kernelOf returns where a task, or what runs before it, names runsc.
func kernelOf(task map[string]any) (path string, ok bool) {
	names := func(of map[string]any) bool {
		container, _ := of["container"].(map[string]any)
		return container["runtime"] == string(schema.Runsc)
	}
	if names(task) {
		return `container.runtime: "runsc"`, true
	}
	list, _ := task["before"].([]any)
	i := slices.IndexFunc(list, func(x any) bool { b, _ := x.(map[string]any); return names(b) })
	return "before[" + strconv.Itoa(i) + `].container.runtime: "runsc"`, i >= 0
}
