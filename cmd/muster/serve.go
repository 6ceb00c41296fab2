package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// newServe is the service of the demo: it answers with the name of its task and a text from
// its environment, and says so when it gets a signal to stop.
func newServe() *cobra.Command {
	var port int
	var greeting string
	c := &cobra.Command{
		Use:    "serve",
		Short:  "answer HTTP on a port of this machine, for the demo",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), port, greeting)
		},
	}
	c.Flags().IntVar(&port, "port", 0, "port to listen on, on 127.0.0.1")
	c.Flags().StringVar(&greeting, "greeting", "hello", "first word of each answer")
	return c
}

func serve(ctx context.Context, port int, greeting string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	s := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "%s from %s/%s/%s pid %d\n", greeting, os.Getenv("MUSTER_USER"), os.Getenv("MUSTER_JOB"), os.Getenv("MUSTER_TASK_INDEX"), os.Getpid())
		}),
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		<-ctx.Done()
		fmt.Println("stopping: finishing what is in progress")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // what is not finished by then is cut off
	}()
	fmt.Printf("serving on %s\n", l.Addr())
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-idle
	return nil
}
