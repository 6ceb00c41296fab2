package loop

import (
	"context"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// lineEvery is the time between two looks at what tasks say of themselves: no
// task can make the agent report more often than that.
const lineEvery = 3 * time.Second

// lineSource is a running incarnation whose status line is read.
type lineSource struct {
	key
	incarnation int
	process     Process
}

// listen reads, in a goroutine of its own, what all running tasks say of
// themselves.
func (l *Loop) listen(ctx context.Context, now time.Time) {
	l.listened = now
	var list []lineSource
	for k, g := range l.held {
		if g.process != nil && g.Alive() && !g.last().Busy {
			list = append(list, lineSource{k, g.last().Number, g.process})
		}
	}
	if len(list) == 0 || l.listening {
		return
	}
	l.listening = true
	l.workers.Go(func() {
		lines := make([]string, len(list))
		for i, s := range list {
			lines[i] = firstLine(s.process.Line())
		}
		l.send(ctx, func() {
			l.listening = false
			for i, s := range list {
				if g := l.held[s.key]; g != nil {
					if c := g.find(s.incarnation); c != nil {
						c.Line = lines[i]
					}
				}
			}
		})
	})
}

// firstLine returns what can be shown of the first line of s that says
// something.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimLeft(s, " \t\r\n"), "\n")
	return printable(line, schema.MaxLine)
}
