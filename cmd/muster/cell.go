package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// labelFlag picks jobs by their labels.
type labelFlag struct{ selector schema.Selector }

func (f *labelFlag) add(c *cobra.Command) {
	c.Flags().VarP(f, "selector", "l", "only jobs with these labels: tier=front,env in (prod,test),!canary; beside their own they have muster/user, muster/job, muster/kind and muster/band")
}

func (f *labelFlag) String() string { return f.selector.String() }

// Type names the flag's type in the help.
func (f *labelFlag) Type() string { return "labels" }

// Set takes a selector.
func (f *labelFlag) Set(s string) (err error) {
	f.selector, err = schema.ParseSelector(s)
	return err
}

// group returns what the flag and the operand, if there is one, name together.
func (f *labelFlag) group(args []string) reconciler.Group {
	g := reconciler.Group{Selector: f.selector}
	if len(args) > 0 {
		g.Name = args[0]
	}
	return g
}

// masterFlag is how a command that looks finds the cell.
type masterFlag struct{ url string }

func (f *masterFlag) add(c *cobra.Command) {
	c.Flags().StringVar(&f.url, "master", "", "address of the cell's master, such as http://127.0.0.1:7420 (default: $MUSTER_MASTER)")
}

// client returns a client of the cell that the flag or the environment names.
func (f *masterFlag) client() (*client.Client, error) {
	url := f.url
	if url == "" {
		url = os.Getenv("MUSTER_MASTER")
	}
	if url == "" {
		return nil, invalid("give --master URL or set MUSTER_MASTER; `muster dev` and `muster master` print the URL in their first line", "which cell? no master is named")
	}
	c, err := client.New(url)
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err, hint: "want an address such as http://127.0.0.1:7420"}
	}
	return c, nil
}
