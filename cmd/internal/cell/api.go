package cell

import "github.com/musterhq/muster/reconciler/link"

// pusher breaks the circle between the loop, which pushes views, and the link,
// which reports to the loop.
type pusher struct{ *link.Server }
