package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Checkpoint returns a checkpoint of the cell as it comes, to be closed; with values, one
// with the values of environment variables and files, and the ciphertexts of secrets. A
// Read errs if the master could not write it to its end.
func (c *Client) Checkpoint(ctx context.Context, values bool) (io.ReadCloser, error) {
	method, path := http.MethodGet, "/v1/checkpoint"
	if values {
		method, path = http.MethodPost, "/v1/checkpoint/values"
	}
	resp, err := c.do(ctx, method, path, nil) //nolint:bodyclose // streamBody closes it
	if err != nil {
		return nil, err
	}
	return &streamBody{c, resp, "the master did not write the checkpoint to its end: ", "try again"}, nil
}

// History decodes into answer what was planned for a commit, a hash or the beginning of one, and
// what then happened; with "", the newest commits, at most limit, 0 for the server's choice.
func (c *Client) History(ctx context.Context, commit string, limit int, answer any) error {
	v := url.Values{}
	if commit != "" {
		v.Set("commit", commit)
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/history", v)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.decode(resp.Body, answer)
}

// Offline returns a client of what answers in this process, such as the API of a
// checkpoint; name is what messages call it.
func Offline(h http.Handler, name string) *Client {
	return &Client{base: &url.URL{Scheme: "http", Host: "localhost"}, http: &http.Client{Transport: inProcess{h}}, name: name}
}

// inProcess carries requests to a handler. An answer is there as a whole.
type inProcess struct{ to http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &answer{header: http.Header{}, code: http.StatusOK}
	t.to.ServeHTTP(w, r)
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer is what a handler has written.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) { a.code = code }

func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
