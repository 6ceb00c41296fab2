// Package mix finds out which asks are typical of a cell, and what the free part of a machine
// is worth to them: so that room is kept in pieces that are of use. Amounts are in the order of
// schema.Dimensions, those of devices in thousandths come last.
//
// A Typical learns from the asks of a cell, and is then asked about many machines: reading it
// from several goroutines at a time is safe while nobody has it learn.
package mix
