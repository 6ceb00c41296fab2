package cell

import (
	"time"

	"github.com/musterhq/muster/reconciler/link"
)

// agents breaks the circle between the link, which passes reports to the shard, and the
// shard, which sends views through the link.
type agents struct{ *link.Server }

// partedFor is for how long beyond its lease a leader may be out of reach for one of the
// masters before the agents there look for another one.
const partedFor = 3 * time.Second
