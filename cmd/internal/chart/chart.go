package chart

import (
	"errors"
	"io"
	"math"
	"strconv"

	"github.com/go-analyze/charts"
)

// The size of a drawing, in pixels at its natural size.
const (
	width       = 720
	height      = 360
	panelHeight = 230
)

// theme has colors that differ for most people who see colours differently, too (Okabe and Ito),
// on white, since a page may be dark.
var theme = func() charts.ColorPalette {
	series := []charts.Color{
		charts.ColorRGB(0, 114, 178), charts.ColorRGB(213, 94, 0), charts.ColorRGB(0, 158, 115),
		charts.ColorRGB(204, 121, 167), charts.ColorRGB(230, 159, 0), charts.ColorRGB(86, 180, 233),
	}
	text, grid := charts.ColorRGB(70, 70, 70), charts.ColorRGB(224, 230, 242)
	o := charts.ThemeOption{BackgroundColor: charts.ColorRGB(255, 255, 255), TextColor: text, AxisStrokeColor: text, AxisSplitLineColor: grid, SeriesColors: series}
	for _, c := range series { // a value with an error bar goes neither up nor down
		o.SeriesUpDownColors = append(o.SeriesUpDownColors, [2]charts.Color{c, c})
	}
	return charts.MakeTheme(o)
}()

// Points are values with error bars, of several series beside each other for each name.
type Points struct {
	Title string
	Y     string   // what the values are
	Log   bool     // the axis of the values is logarithmic
	Names []string // along the other axis
	// Series have a value for each of Names.
	Series []Series
}

// Series is what belongs together.
type Series struct {
	Name   string
	Values []Value
}

// Value is a value with the ends of its error bar.
type Value struct{ Value, Min, Max float64 }

// errNothing is what there is to draw of nothing.
var errNothing = errors.New("nothing to draw")

// WriteTo writes the drawing. It errs if there is nothing to draw, and if a logarithm does not exist.
func (p *Points) WriteTo(w io.Writer) (int64, error) {
	if len(p.Names) == 0 || len(p.Series) == 0 {
		return 0, errNothing
	}
	var series []charts.CandlestickSeries
	var names []string
	for i := range p.Series {
		s := charts.CandlestickSeries{Name: p.Series[i].Name}
		for _, v := range p.Series[i].Values {
			if p.Log {
				if v.Min <= 0 {
					return 0, errors.New("a value of 0 or less has no logarithm")
				}
				v = Value{math.Log10(v.Value), math.Log10(v.Min), math.Log10(v.Max)}
			}
			s.Data = append(s.Data, charts.OHLCData{Open: v.Value, Close: v.Value, Low: v.Min, High: v.Max})
		}
		series, names = append(series, s), append(names, s.Name)
	}
	o := charts.NewCandlestickOptionWithSeries(series...)
	o.Theme = theme
	o.Title = charts.TitleOption{Text: p.Title, FontStyle: charts.NewFontStyleWithSize(14), Subtext: p.Y, SubtextFontStyle: charts.NewFontStyleWithSize(11)}
	o.Legend = legend(names)
	o.XAxis.Labels = p.Names
	o.ValueFormatter = number
	if p.Log {
		o.ValueFormatter = func(v float64) string { return strconv.FormatFloat(math.Pow(10, v), 'g', 2, 64) }
	}
	o.YAxis = []charts.YAxisOption{{ValueFormatter: o.ValueFormatter}}
	return write(w, height, func(page *charts.Painter) error { return page.CandlestickChart(o) })
}

// legend names series below the drawing.
func legend(names []string) charts.LegendOption {
	return charts.LegendOption{
		SeriesNames: names, FontStyle: charts.NewFontStyleWithSize(11), Offset: charts.OffsetStr{Left: charts.PositionCenter, Top: charts.PositionBottom},
	}
}

// number writes a value of an axis.
func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// write draws onto a page and writes that.
func write(w io.Writer, height int, onto func(*charts.Painter) error) (int64, error) {
	page := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: width, Height: height, Theme: theme}, charts.PainterPaddingOption(charts.NewBoxEqual(12)))
	if err := onto(page); err != nil {
		return 0, err
	}
	b, err := page.Bytes()
	if err != nil {
		return 0, err
	}
	n, err := w.Write(append(b, '\n'))
	return int64(n), err
}
