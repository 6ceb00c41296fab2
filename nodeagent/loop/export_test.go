package loop

import (
	"context"

	"github.com/musterhq/muster/nodeagent"
)

// What tests look at from outside.
var (
	CheckPort = checkPort
	Listeners = listeners
	Printable = printable
)

// Ask carries out one health check.
func Ask(ctx context.Context, c *nodeagent.Check, p Process) nodeagent.Result {
	return newAsker(c, p).ask(ctx)
}
