// Package web is the master's HTTP API, its status page and its
// metrics.
//
// In: the cell's published snapshot and what else the Config names; the package
// declares what it needs of each. Out, all under one address:
//
//	GET  /                 a page for people; ?watch=1 sends its body when it is another
//	GET  /v1/status        status.Status; ?after=VERSION&wait=30s waits for a newer one, tasks=0 leaves the tasks out, most=N what is as desired
//	GET  /v1/jobs          a list in pages, as are tasks and machines; ?limit=&continue=&name=&selector=&fields=
//	GET  /v1/why           ?job=user/job[&index=N]
//	GET  /v1/events        JSON lines; ?after=ID&newest=1&limit=&job=&task=&machine=&kind=&wait=
//	GET  /v1/logs          ?task=user/job/index&stream=&follow=1&tail=&generation=&incarnation=
//	GET  /v1/commit        how a commit stands to the head
//	POST /v1/reconcile     look at the repository now, and wait for what it finds
//	POST /v1/suspend       ?name=user/job or all&reason=&for=2h: commits leave it as it is
//	POST /v1/resume        ?name=user/job or all
//	POST /v1/forget        ?machine=m1&reason=: it is gone for good; &dry=1 says what that would do
//	POST /v1/restart       ?name=user/job[/index]&reason=, or &cancel=1 to end it
//	POST /v1/page          an address of the page, with a password
//	GET  /metrics          for Prometheus
//	GET  /healthz          200 while it serves
//
// Status, lists and events take ?watch=1, and are then streams of server-sent events.
//
// A master that does not lead answers status, lists, events, page and metrics from the
// state that the leader pushes to it, says how old that is, and forwards all else (Leader).
//
// An error is {"error", "hint"} with a status code that says whose it is. An
// error in the middle of a log is in the trailer Muster-Error.
//
// Who asks is known, or is refused: over TLS by a certificate, else by what the
// kernel says of the other end of the connection, see Local. /healthz alone answers
// everybody. Without TLS it is served on loopback and on a unix socket; on loopback
// to requests whose Host is loopback too (or a page on the web could reach it
// through a name of its own). None that a page elsewhere caused is answered, and a
// POST needs the header Muster-Request (which such a page cannot send). Nothing here
// changes what is desired.
//
// The handlers only read snapshots and may run at any time; the package keeps no
// state but the passwords of the page, and what has changed lately for those who watch.
package web
