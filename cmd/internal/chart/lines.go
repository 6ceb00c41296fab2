package chart

import (
	"io"

	"github.com/go-analyze/charts"
)

// Lines are panels, one below the other, that have the same times along their other axis.
type Lines struct {
	Title  string
	Times  []string // labels
	Panels []Panel
}

// Panel is a drawing of lines.
type Panel struct {
	Y     string // what the values are
	Lines []Line
}

// Line has a value for each of the times.
type Line struct {
	Name   string
	Values []float64
}

// WriteTo writes the drawing. It errs if there is nothing to draw.
func (l *Lines) WriteTo(w io.Writer) (int64, error) {
	if len(l.Times) == 0 || len(l.Panels) == 0 {
		return 0, errNothing
	}
	return write(w, len(l.Panels)*panelHeight, func(page *charts.Painter) error {
		for i := range l.Panels {
			box := charts.NewBox(0, i*panelHeight, page.Width(), (i+1)*panelHeight-10)
			title := ""
			if i == 0 {
				title = l.Title
			}
			if err := l.Panels[i].draw(page.Child(charts.PainterBoxOption(box)), title, l.Times); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *Panel) draw(on *charts.Painter, title string, times []string) error {
	var values [][]float64
	var names []string
	for _, l := range p.Lines {
		values, names = append(values, l.Values), append(names, l.Name)
	}
	o := charts.NewLineChartOptionWithData(values)
	o.Theme = theme
	if title == "" {
		title = p.Y
	} else {
		o.Title.Subtext, o.Title.SubtextFontStyle = p.Y, charts.NewFontStyleWithSize(11)
	}
	o.Title.Text, o.Title.FontStyle = title, charts.NewFontStyleWithSize(13)
	o.Legend = legend(names)
	o.Symbol = charts.Symbol{Shape: charts.SymbolNone}
	o.LineStrokeWidth = 1.5
	o.XAxis.Labels, o.XAxis.LabelCount = times, 9
	o.XAxis.BoundaryGap = charts.Ptr(false)
	o.YAxis = []charts.YAxisOption{{ValueFormatter: number, Min: charts.Ptr(0.0)}}
	o.StrokeSmoothingTension = 0
	return on.LineChart(o)
}
