// Command muster-keeper holds one task for muster-agent; see package keeper.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/musterhq/muster/nodeagent/keeper"
)

// version is set by the linker.
var version = "dev"

func main() {
	if args := os.Args[1:]; slices.Equal(args, []string{"--version"}) || slices.Equal(args, []string{"version"}) {
		fmt.Println("muster-keeper", version)
		return
	}
	os.Exit(keeper.Main(os.Args[1:]))
}
