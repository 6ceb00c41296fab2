// Package bench measures a master under the load of a large cell of hollow machines.
//
// In: a Config: the binary of muster, and how many machines. Out: a Result: a row for each
// thing that was measured, beside its budget for a cell of that size, which budgets.json
// has. The master is a process of its own, with a real git repository and its own store, so
// that its processor time and memory can be measured apart from those of the machines,
// which are in this process.
//
// Run is called once at a time. It leaves nothing behind.
package bench
