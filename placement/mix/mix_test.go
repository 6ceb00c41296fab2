package mix

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/musterhq/muster/placement/device"
)

const gpu = 1

func needOf(kind, _ string, count, milli int) device.Need {
	if kind != "gpu" {
		panic(kind)
	}
	return device.Need{Kind: gpu, Count: count, Milli: int16(milli)}
}

var cell = Stock{Machines: 10, Capacity: [Dims]int64{100_000, 100_000, 100_000}, Devices: 40_000}

func learnt(t *testing.T, counts map[Shape]int) *Typical {
	t.Helper()
	x := &Typical{}
	total := 0
	for _, n := range counts {
		total += n
	}
	if !x.IsDue(0) {
		t.Fatal("it is not due to learn what nothing is known of")
	}
	if !x.Learn(counts, total, cell, needOf) {
		t.Fatal("what was learnt first is no news")
	}
	return x
}

// What fits, and what that is worth, is the same counted by hand.
func TestValue(t *testing.T) {
	t.Parallel()
	small, large := Shape{Limit: [Dims]int64{1000, 1000, 0}}, Shape{Limit: [Dims]int64{4000, 1000, 0}, Kind: "gpu", Milli: device.Whole, Count: 2}
	x := learnt(t, map[Shape]int{small: 30, large: 10})
	x.SetSteady(true)
	at := func(sh Shape) int { return slices.IndexFunc(x.asks, func(a typicalAsk) bool { return a.Shape == sh }) }
	free := [Dims]int64{8500, 3000, 0}
	list := []device.Device{{Kind: gpu, Free: device.Whole}, {Kind: gpu, Free: device.Whole}, {Kind: gpu, Free: 500}}
	for _, c := range []struct {
		devices        []device.Device
		smalls, larges int
	}{{list, 3, 1}, {list[1:], 3, 0}, {nil, 3, 0}} {
		want := float32(c.smalls)*x.asks[at(small)].worth + float32(c.larges)*x.asks[at(large)].worth
		got, fits := x.Value(&free, c.devices, 0, x.All())
		if math.Abs(float64(got-want)) > 1e-6 || fits>>at(small)&1 != 1 || (fits>>at(large)&1 == 1) != (c.larges > 0) {
			t.Errorf("%d devices: worth %v of %b, want %v", len(c.devices), got, fits, want)
		}
		if _, fits = x.Value(&free, c.devices, 0, 1<<at(large)); fits>>at(small)&1 != 0 {
			t.Errorf("%d devices: what was not asked about fits", len(c.devices))
		}
	}
	if !x.SetSteady(false) || x.SetSteady(false) {
		t.Error("SetSteady does not tell what is new")
	}
	// Of 8,500 and 3,000 all is of use to the small ones, nothing to the large ones without devices.
	left := float32(free[0])*x.Scale[0] + float32(free[1])*x.Scale[1]
	got, _ := x.Value(&free, nil, 0, x.All())
	if want := x.asks[at(large)].share * scarceBulk * left; math.Abs(float64(got-want)) > 1e-5 {
		t.Errorf("useless is %v, want %v", got, want)
	}
}

// What is useless to a typical ask counts the less the smaller it is beside the mean machine, but
// for one of what some machines lack.
func TestBulk(t *testing.T) {
	t.Parallel()
	stock := Stock{Machines: 10, Having: [Dims]int64{10, 9, 8}, Capacity: [Dims]int64{1000, 1000, 1000}, Devices: 8000}
	for _, c := range []struct {
		ask  Shape
		want float32
	}{
		{Shape{Limit: [Dims]int64{50, 10, 0}}, 0.125 + 0.5*scatteredBulk},
		{Shape{Limit: [Dims]int64{10, 50, 0}}, 0.125 + 0.5*scatteredBulk},
		{Shape{Limit: [Dims]int64{100, 10, 0}}, 1 + scatteredBulk},
		{Shape{Limit: [Dims]int64{300, 10, 0}}, 1 + scatteredBulk},
		{Shape{Limit: [Dims]int64{100, 10, 1}}, scarceBulk},
		{Shape{Limit: [Dims]int64{100, 10, 0}, Kind: "gpu", Milli: 500, Count: 1}, scarceBulk},
		{Shape{}, 0},
	} {
		if got := bulk(&c.ask, &stock); got != c.want {
			t.Errorf("%+v: %v, want %v", c.ask, got, c.want)
		}
	}
}

// What is learnt does not depend on the order of a map, and only what is much otherwise is news.
func TestLearn(t *testing.T) {
	t.Parallel()
	counts := map[Shape]int{}
	total := 0
	for i := range 100 {
		counts[Shape{Limit: [Dims]int64{int64(100 + 7*i), int64(3000 - 11*i), int64(i)}}] = 1 + i%5
		total += 1 + i%5
	}
	first := learnt(t, counts)
	for range 20 {
		again := learnt(t, counts)
		if fmt.Sprint(*again) != fmt.Sprint(*first) {
			t.Fatalf("learnt %v, then %v", *first, *again)
		}
	}
	if len(first.asks) > typicalAsks {
		t.Errorf("%d asks are typical", len(first.asks))
	}
	if first.Learn(counts, total, cell, needOf) {
		t.Error("the same is news")
	}
	if first.IsDue(1) || !first.IsDue(total) {
		t.Error("it is due to learn for one ask more, or not for as many again")
	}
	for range total {
		first.Changed()
	}
	if !first.IsDue(0) {
		t.Error("it is not due to learn after as many changes as there were asks")
	}
	if first.Learn(map[Shape]int{}, 0, cell, needOf) || !first.Learn(map[Shape]int{{Limit: [Dims]int64{1, 0, 0}}: 9}, 9, cell, needOf) {
		t.Error("nothing is news, or all that is otherwise is not")
	}
}

// In a steady cell asks stand for all by what they want of what is scarce, and those that differ in what is
// not are one; while it fills they stand for all by all that they want.
func TestScarce(t *testing.T) {
	t.Parallel()
	counts := map[Shape]int{}
	total := 0
	add := func(sh Shape, n int) {
		counts[sh] += n
		total += n
	}
	for i := range 40 { // what wants two devices differs in CPU and RAM, of which there is plenty
		cpu, ram := int64(1)<<(i%8), int64(1)<<(i/8)
		add(Shape{Limit: [Dims]int64{10 + cpu, 10 + ram, 0}, Kind: "gpu", Milli: device.Whole, Count: 2}, 1)
	}
	for i := range int64(10) {
		add(Shape{Limit: [Dims]int64{1200 + 100*i, 300, 0}}, 1)
	}
	stock := Stock{Machines: 10, Having: [Dims]int64{10, 10, 10}, Capacity: [Dims]int64{100_000, 100_000, 100_000}, Devices: 100_000}
	x := &Typical{}
	shareOfDevices := func(steady bool) (share float32, most float32) {
		if x.SetSteady(steady) && !x.IsDue(0) {
			t.Fatal("it is not due to learn in a cell that is steady now, or not any more")
		}
		kinds := map[Shape]int{}
		for sh, n := range counts {
			kinds[sh] = n
		}
		x.Learn(kinds, total, stock, needOf)
		var worth float32
		for _, a := range x.asks {
			if a.Kind != "" {
				share += a.share
				most = max(most, a.worth)
			}
			worth = max(worth, a.worth)
		}
		return share, most / worth
	}
	if share, most := shareOfDevices(false); share > 0.5 || most > 0.1 {
		t.Errorf("while the cell fills those that want devices are %v of all, and worth %v of what the largest is", share, most)
	}
	if share, most := shareOfDevices(true); share < 0.8 || most < 1 {
		t.Errorf("in a steady cell those that want devices, of which most is wanted, are %v of all, and worth %v of what the largest is", share, most)
	}
}

// The direction of what is free has length 1, and what is scarce weighs most.
func TestUnitAndSize(t *testing.T) {
	t.Parallel()
	x := learnt(t, map[Shape]int{{Limit: [Dims]int64{9000, 1000, 0}}: 10})
	u := x.Unit(&[Dims]int64{900, 100, 0}, 0)
	if square := u[0]*u[0] + u[1]*u[1] + u[2]*u[2] + u[3]*u[3]; math.Abs(float64(square-1)) > 1e-6 || u[0] != u[1] {
		t.Errorf("direction %v, want one with equal parts of CPU and RAM", u)
	}
	if u := x.Unit(&[Dims]int64{}, 0); u != [Dims + 1]float32{} {
		t.Errorf("direction %v of nothing", u)
	}
	cpu, ram := x.Size(&[Dims]int64{1000, 0, 0}, 0), x.Size(&[Dims]int64{0, 1000, 0}, 0)
	if cpu < 50*ram || ram <= 0 || x.Size(&[Dims]int64{}, 500) != 0 {
		t.Errorf("CPU, of which most is used, counts %v, RAM %v", cpu, ram)
	}
}
