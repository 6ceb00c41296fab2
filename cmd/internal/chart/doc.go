// Package chart draws what simulations find as SVG.
//
// In: a Points or a Lines. Out: one SVG document, the same bytes for the same data. It is the
// only importer of the plot library, reads and writes no file, and may be called from any
// goroutine.
package chart
