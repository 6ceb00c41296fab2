package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/chart"
)

// drawn returns a drawing that is checked to be XML.
func drawn(t *testing.T, d io.WriterTo) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	for x := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
		if _, err := x.Token(); errors.Is(err, io.EOF) {
			return b.String()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPoints draws points with error bars, the same each time.
func TestPoints(t *testing.T) {
	t.Parallel()
	p := chart.Points{
		Title: "a < b", Y: "more machines, %", Names: []string{"one", "two"},
		Series: []chart.Series{{"own & cells", []chart.Value{{20, 18, 22}, {-3, -5, 1}}}, {"other", []chart.Value{{1, 1, 1}, {2, 1, 3}}}},
	}
	svg := drawn(t, &p)
	for _, want := range []string{"a &lt; b", "more machines, %", ">one<", ">two<", "own &amp; cells", "rgb(0,114,178)", "rgb(213,94,0)"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q", want)
		}
	}
	if svg != drawn(t, &p) {
		t.Error("drawn twice it is not the same")
	}
	p.Log = true
	if _, err := p.WriteTo(io.Discard); err == nil {
		t.Error("the logarithm of a negative value is drawn")
	}
	p.Series = p.Series[1:]
	drawn(t, &p)
	if _, err := (&chart.Points{}).WriteTo(io.Discard); err == nil {
		t.Error("nothing is drawn")
	}
}

// TestLines draws panels of lines.
func TestLines(t *testing.T) {
	t.Parallel()
	l := chart.Lines{Title: "a day", Times: []string{"0h", "1h", "2h"}, Panels: []chart.Panel{
		{Y: "% of CPU", Lines: []chart.Line{{"allocated", []float64{80, 81, 90}}, {"used", []float64{40, 41, 45}}}},
		{Y: "tasks", Lines: []chart.Line{{"pending", []float64{0, 0, 7}}}},
	}}
	svg := drawn(t, &l)
	for _, want := range []string{">a day<", ">% of CPU<", ">tasks<", ">used<", ">2h<", ">pending<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q", want)
		}
	}
	if _, err := (&chart.Lines{}).WriteTo(io.Discard); err == nil {
		t.Error("nothing is drawn")
	}
}
