package web

import (
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// targetGroup is what Prometheus discovers targets from: an element of the answer that its
// http_sd_configs asks for.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targets answers with the ports of endpoints as Prometheus discovers them: also of those
// that are not ready, which are to be seen as down and not as gone.
func targets(look snapshots) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &query{r.URL.Query(), nil}
		group, port := status.Group{Name: q.Get("name"), Selector: q.selector()}, q.Get("port")
		if q.err != nil {
			return q.err
		}
		cell, _, err := look(r.Context())
		if err != nil {
			return stopped(err)
		}
		part, err := group.Of(cell)
		if err != nil {
			return notFound(err)
		}
		groups := []targetGroup{} // in JSON [], which Prometheus wants of nothing
		for e := range part.Endpoints() {
			for _, p := range e.Ports {
				if e.Address != "" && (port == "" || p.Name == port) {
					groups = append(groups, targetGroup{[]string{net.JoinHostPort(e.Address, strconv.Itoa(p.Port))}, targetLabels(cell.Brief().Cell, e, p.Name)})
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, groups)
	}
}

// targetLabels are the labels of a target while it is relabelled: Prometheus drops those
// that begin with __ after that.
func targetLabels(cell string, e *status.Endpoint, port string) map[string]string {
	user, job, _ := strings.Cut(model.JobOf(e.Name), "/")
	labels := map[string]string{
		"__meta_muster_cell": cell, "__meta_muster_user": user, "__meta_muster_job": job, "__meta_muster_task": e.Name,
		"__meta_muster_machine": e.Machine, "__meta_muster_port": port, "__meta_muster_ready": strconv.FormatBool(e.Ready),
	}
	for name, value := range e.Labels {
		if !strings.HasPrefix(name, schema.OwnLabels) { // which are above
			labels["__meta_muster_label_"+labelName(name)] = value
		}
	}
	return labels
}

// labelName returns name with what a label of Prometheus cannot have replaced.
func labelName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, name)
}
