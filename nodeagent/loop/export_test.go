package loop

// What tests look at from outside.
var (
	CheckPort = checkPort
	Listeners = listeners
	Printable = printable
)
