// Command muster-keeper holds one task for muster-agent; see package keeper.
package main

import (
	"os"

	"github.com/musterhq/muster/nodeagent/keeper"
)

func main() { os.Exit(keeper.Main(os.Args[1:])) }
