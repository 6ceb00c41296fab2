package runtime

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"

	"github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/host"
)

// The kernel runs a filter once for each system call that there is when a process takes
// it, as each check of a task does: so a call finds its rule by a search in the numbers,
// and not by comparing it with all that have one.

// verdict is the end of a program: what is answered to a call whose number is known.
type verdict []bpf.Instruction

func returns(a seccomp.Action) verdict { return verdict{bpf.RetConstant{Val: uint32(a)}} }

// refusedIf refuses a call by the lower half of an argument, which is all that the kernel
// looks at of those that are judged here.
func refusedIf(argument int, cond bpf.JumpTest, value uint32) verdict {
	return slices.Concat(verdict{lowerHalf(argument), bpf.JumpIf{Cond: cond, Val: value, SkipFalse: 1}}, returns(refused), returns(seccomp.ActionAllow))
}

// lowerHalf loads half of an argument.
func lowerHalf(argument int) bpf.Instruction {
	at := uint32(argumentOffset + 8*argument)
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		at += 4
	}
	return bpf.LoadAbsolute{Off: at, Size: 4}
}

// sockets allows sockets of these families, and netlink ones of these protocols.
func sockets(families, netlink []uint32) verdict {
	return slices.Concat(
		verdict{lowerHalf(0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_NETLINK, SkipTrue: uint8(1 + len(netlink) + 2)}},
		verdict{lowerHalf(2)}, only(netlink, noProtocol), // this and what it answers is left out for the others
		only(families, noFamily),
	)
}

// only allows what is loaded if it is one of list.
func only(list []uint32, no seccomp.Action) verdict {
	var v verdict
	for i, f := range list {
		v = append(v, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f, SkipTrue: uint8(len(list) - i)})
	}
	return slices.Concat(v, returns(no), returns(seccomp.ActionAllow))
}

// noProjects keeps tasks from giving their files to another project, or to none, which
// every owner of a file may: it would be counted no more.
func noProjects() verdict {
	return slices.Concat(verdict{
		lowerHalf(1),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: host.SetAttributes, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: host.SetFlags, SkipTrue: 1},
	}, returns(refused), returns(seccomp.ActionAllow))
}

// beyond is above all numbers of calls; those of x32 are there, to which amd64 gives no
// architecture of their own.
const beyond = 0x40000000

// stretch are numbers that have one verdict, up to those of the next stretch.
type stretch struct {
	from    uint32
	verdict int
}

// searchTree makes a program that answers to the number which is loaded as rules say, and
// allows what has none.
func searchTree(rules map[uint32]verdict) ([]bpf.Instruction, error) {
	t := &tree{ends: []verdict{returns(seccomp.ActionAllow)}}
	all := []stretch{{}}
	add := func(from uint32, v verdict) {
		s := stretch{from, t.end(v)}
		if last := &all[len(all)-1]; last.from == from {
			*last = s
		} else if last.verdict != s.verdict {
			all = append(all, s)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(rules)) {
		add(number, rules[number])
		add(number+1, t.ends[0])
	}
	add(beyond, returns(notThere))
	t.split(all)
	return t.link()
}

// farthest is how many instructions a jump on a condition can leave out.
const farthest = math.MaxUint8

// tree is a program that is being made.
type tree struct {
	program []bpf.Instruction
	ends    []verdict // which follow
	// open are the jumps of program to an end: by the index of the jump, and whether it
	// is taken if the number is smaller.
	open []openJump
}

type openJump struct {
	at      int
	smaller bool
	end     int
}

// end returns which of ends v is.
func (t *tree) end(v verdict) int {
	i := slices.IndexFunc(t.ends, func(o verdict) bool { return reflect.DeepEqual(o, v) })
	if i < 0 {
		i, t.ends = len(t.ends), append(t.ends, v)
	}
	return i
}

// split adds what finds the stretch of a number: of two or more.
func (t *tree) split(list []stretch) {
	at, middle := len(t.program), len(list)/2
	t.program = append(t.program, nil)
	jump := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: list[middle].from}
	if middle == 1 {
		t.open = append(t.open, openJump{at, true, list[0].verdict})
	} else {
		t.split(list[:middle])
	}
	if upper := list[middle:]; len(upper) == 1 {
		t.open = append(t.open, openJump{at, false, upper[0].verdict})
	} else {
		jump.SkipTrue = uint8(len(t.program) - at - 1)
		t.split(upper)
	}
	t.program[at] = jump
}

// link puts the ends behind the program, and leads the open jumps there.
func (t *tree) link() ([]bpf.Instruction, error) {
	starts := make([]int, len(t.ends))
	n := len(t.program)
	for i, v := range t.ends {
		starts[i] = n
		n += len(v)
	}
	if n > farthest {
		return nil, fmt.Errorf("seccomp: %d instructions, want at most %d", n, farthest)
	}
	for _, o := range t.open {
		jump, _ := t.program[o.at].(bpf.JumpIf)
		skip := uint8(starts[o.end] - o.at - 1)
		if o.smaller {
			jump.SkipFalse = skip
		} else {
			jump.SkipTrue = skip
		}
		t.program[o.at] = jump
	}
	return append(t.program, slices.Concat(t.ends...)...), nil
}
