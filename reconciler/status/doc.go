// Package status says how a cell is, for people and programs: Describe, Explain for one
// job or task, Group for a part of it, and DescribeUsage and SumUsage.
//
// In: the State, what is desired, the Observed, what the newest step decided, and
// facts.Facts. Out: values with stable field names, which the API serves. It reads
// reasons where they were made, and decides nothing.
//
// It is pure. A Status is shared, and must not be written to.
package status
