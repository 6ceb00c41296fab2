package reconciler_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// rivals has another agent connect that says that it is a machine, with an id, and
// perhaps another boot; with answers the one that has the name is there. It asks again
// when it is asked to.
func (c *cell) rivals(t *testing.T, d *datadriven.TestData, args []string) string {
	t.Helper()
	info := schema.MachineInfo{Name: args[0], ID: args[1], Boot: "boot-1", Attributes: map[string]string{"hostname": "elsewhere"}}
	if was := c.agent(args[0]); was != nil {
		info = was.info
		info.ID, info.Attributes = args[1], map[string]string{"hostname": "elsewhere"}
	}
	if d.HasArg("boot") {
		d.ScanArgs(t, "boot", &info.Boot)
	}
	info.Link = schema.Connection{From: "10.0.0.9:4000", Answers: d.HasArg("answers")}
	if !info.Link.Answers {
		c.left(info.Name)
	}
	_, err := c.master.Join(info, c.now)
	said := lines(c.carryOut())
	if err != nil && c.state.Machines[info.Name] != nil && c.state.Machines[info.Name].Forgotten != nil {
		said += "not yet: " + err.Error() + "\n" + c.stepped()
		_, err = c.master.Join(info, c.now)
		said += lines(c.carryOut())
	}
	if taken := (*schema.TakenError)(nil); errors.As(err, &taken) {
		return said + "refused: " + err.Error() + "\n"
	}
	if err != nil {
		return said + "not yet: " + err.Error() + "\n"
	}
	a := c.agent(args[0])
	if a == nil {
		c.join(args[0], 4, 8)
		a = c.agent(args[0])
	}
	a.info, a.silent, a.tasks = info, false, map[uint64]*schema.TaskStatus{}
	return said
}

// forgetting has a machine forgotten by anna; with linked its agent is connected.
func (c *cell) forgetting(d *datadriven.TestData, args []string) string {
	if !d.HasArg("linked") {
		c.left(args[0])
	}
	f, err := c.master.Forget(args[0], schema.Forgotten{By: "anna", Reason: strings.Join(args[1:], " ")}, false, c.now)
	if none := (*model.NotFoundError)(nil); errors.As(err, &none) {
		return fmt.Sprintf("error: %s\nhint: %s\n", none.Message, none.Hint)
	}
	if linked := (*control.LinkedError)(nil); errors.As(err, &linked) {
		return fmt.Sprintf("error: %s\nhint: %s\n", linked, linked.Hint())
	}
	said := fmt.Sprintf("tasks %v, never twice %v\n", f.Tasks, f.NeverTwice) + lines(c.carryOut()) + c.stepped()
	return said + fmt.Sprintf("known: %t\n", c.state.Machines[args[0]] != nil)
}

// left says that the connection of a machine has ended.
func (c *cell) left(machine string) {
	if r := c.state.Machines[machine]; r != nil {
		c.master.Leave(machine, r.Epoch)
		delete(c.views, machine)
	}
}
