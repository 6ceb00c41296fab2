package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/web/client"
)

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
