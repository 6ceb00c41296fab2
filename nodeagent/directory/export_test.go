package directory

// Pause is for tests.
var Pause = pause
