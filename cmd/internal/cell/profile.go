package cell

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

// profileShutdown is how long a profile that is being taken is waited for.
const profileShutdown = time.Second

// listenProfiles opens the socket for profiles; nil without an address. Who asks need
// not say who it is, so it is loopback alone.
func (m *master) listenProfiles() (err error) {
	addr := m.cfg.Profiles
	if addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return inputError("such as --pprof 127.0.0.1:6060", "--pprof %q: want HOST:PORT", addr)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return inputError("such as --pprof 127.0.0.1:"+port, "--pprof %q: profiles are served on a loopback address alone", addr)
	}
	if m.profiles, err = net.Listen("tcp", addr); err != nil {
		return inputError("choose another port, or 0 for any that is free", "--pprof: %w", err)
	}
	m.cfg.Log.Info("profiles", "address", "http://"+m.profiles.Addr().String()+"/debug/pprof/")
	return nil
}

// serveProfiles serves what net/http/pprof has, until ctx ends.
func (m *master) serveProfiles(ctx context.Context) error {
	if m.profiles == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- s.Serve(m.profiles) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), profileShutdown)
	defer cancel()
	if s.Shutdown(stop) != nil {
		_ = s.Close() // who takes a profile sees it cut off
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
