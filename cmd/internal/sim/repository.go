package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// users own what runs in a random cell.
var users = []string{"a", "b", "c", "d", "e"}

// template is one of the jobs that each user may have.
type template struct {
	name  string
	tasks int // at first
	most  int
	// add puts the job into the package of its user's directory.
	add func(p *schema.Package, d declared)
}

// declared is how a job stands in the repository. The zero value is one that is
// not there.
type declared struct {
	there   bool
	tasks   int
	version int
	earlier int // version
	shift   int // of its priority, within its band
	without int // of an alloc set and its jobs: 1 without the set, 2 without the jobs
}

// versions are the arguments of a service; "crash" and "sick" do what they say,
// and "degrade" becomes sick.
var versions = []string{"v1", "v2", "v3", "v4", "crash", "sick", "degrade"}

func (d declared) argument() string { return versions[d.version%len(versions)] }

func (d declared) priority(floor schema.Priority) schema.Priority {
	return floor + schema.Priority(d.shift%3*30)
}

// templates is the catalogue of most worlds: a random cell has at most one job of each for each
// user. Together they ask for about a hundred tasks at first.
var templates = []template{
	{"web", 5, 14, func(p *schema.Package, d declared) {
		j := Service("web", d.tasks, d.argument())
		switch d.shift % 4 {
		case 1:
			j.Disruption = &schema.Disruption{MaxDown: 1}
		case 2:
			j.Disruption = &schema.Disruption{MaxDown: 3, PerHour: 4}
		case 3:
			j.Disruption = &schema.Disruption{PerHour: 6}
		}
		addJob(p, secretive(p, j, d.shift/2%3, ""))
	}},
	{"api", 3, 9, func(p *schema.Package, d declared) {
		j := cautious(Service("api", d.tasks, d.argument()), d.shift)
		j.Priority, j.Update.MaxParallel = d.priority(210), 1
		addJob(p, packaged(j, d.version%4))
	}},
	{"low", 3, 9, func(p *schema.Package, d declared) {
		j := Service("low", d.tasks, d.argument())
		j.Priority, j.Task.Health = d.priority(100), nil
		if after := []int{0, 15, 90}[d.shift/3%3]; after > 0 {
			j.Silence = &schema.Silence{AfterSeconds: after}
		}
		if d.shift%6 == 5 {
			j.Constraints = []schema.Constraint{{Attribute: "tier", Operator: schema.Equal, Value: "a"}}
		}
		addJob(p, secretive(p, j, d.shift%5, schema.ChangeSignal))
	}},
	{"once", 2, 4, func(p *schema.Package, d declared) {
		j := Service("once", d.tasks, d.argument())
		j.Priority, j.Task.Health, j.Silence = d.priority(0), nil, &schema.Silence{NeverTwice: true}
		addJob(p, j)
	}},
	{"bulk", 3, 9, func(p *schema.Package, d declared) {
		addJob(p, sized(Heavy("bulk", d.tasks, d.priority(0)), d.version%4))
	}},
	{"main", 2, 6, func(p *schema.Package, d declared) {
		j := sized(Heavy("main", d.tasks, d.priority(200)), d.version%2)
		// Two racks have all of production's: when these grow, they want more than there is.
		rack := fmt.Sprintf("r%d", slices.Index(users, p.Dir[len("teams/"):])%2)
		j.Constraints = []schema.Constraint{{Attribute: "rack", Operator: schema.Equal, Value: rack}}
		addJob(p, j)
	}},
	{"count", 2, 6, func(p *schema.Package, d declared) {
		j := Batch("count", d.tasks)
		j.Task.Env = map[string]string{"RUN": fmt.Sprint(d.version)}
		addJob(p, j)
	}},
	{"logs", 0, 0, func(p *schema.Package, d declared) {
		if p.Dir == "teams/a" { // one user has agents of his own everywhere
			j := System("logs", d.argument())
			// However other jobs fill a machine, so much of it is left: see info.
			j.Priority, j.Task.Resources.CPUMilli = 150, 20
			addJob(p, j)
		}
	}},
	{"pair", 2, 5, func(p *schema.Package, d declared) {
		inner := max(d.tasks, 1) * 2
		Within(p, Pair("pair", d.tasks, int64(300+100*(d.shift%3))),
			Service("inner", inner, d.argument()), careful(Service("saver", d.tasks, versions[d.version%2]), d.shift%3))
		part(p, d.without)
	}},
}

// sized is a heavy service that asks for more than at first, or for less: where
// there is no room for more, it cannot be had in place.
func sized(j schema.Job, size int) schema.Job {
	j.Task.Resources.CPUMilli = []int64{1270, 1600, 1000, 1900}[size]
	return j
}

// careful is a service whose new tasks must run for some seconds.
func careful(j schema.Job, seconds int) schema.Job {
	j.Update.MinHealthySeconds = seconds
	return j
}

// repository is what the cell's git repository holds at its head, and held.
type repository struct {
	catalogue []template
	jobs      map[string][]declared      // of each user, by template
	broken    map[string]bool            // users whose package does not compile
	gone      map[string]bool            // users whose directory is not there
	quotas    map[string]int             // of each user, in percent of what it is at first
	machines  map[string]schema.Machine  // what is declared of them, by the names of the objects
	packages  map[string]*schema.Package // as committed last; nil: does not compile
	// movesPerHour is what the cell bounds moves to; 0: it says nothing.
	movesPerHour int
	emptyBelow   int                   // machines of which less is used are emptied, in percent; 0: none
	picky        bool                  // some jobs say more of where their tasks may be
	first        func(job string) bool // reports whether a job, as user/job, is there at first
}

// newRepository returns one that holds the jobs of a world, or all of the catalogue for
// each user.
func newRepository(of *Config) *repository {
	r := &repository{
		catalogue: of.catalogue(), jobs: map[string][]declared{}, broken: map[string]bool{}, gone: map[string]bool{}, quotas: map[string]int{}, machines: map[string]schema.Machine{},
		packages: map[string]*schema.Package{}, movesPerHour: of.MovesPerHour, emptyBelow: of.EmptyBelow, picky: of.Picky,
	}
	names := strings.Split(of.Jobs, ",")
	r.first = func(job string) bool { return of.Jobs == "" || slices.Contains(names, job) }
	r.packages["."] = r.root()
	for _, u := range users {
		for _, t := range r.catalogue {
			r.jobs[u] = append(r.jobs[u], declared{there: r.first(u + "/" + t.name), tasks: t.tasks})
		}
		r.write(u)
	}
	r.packages["cells"] = Declared(r.machines)
	return r
}

// root returns the root package as it is to be.
func (r *repository) root() *schema.Package {
	p := randomRoot(r.quotas)
	if r.movesPerHour > 0 || r.emptyBelow > 0 {
		p.Objects.Cells[0].Rebalance = &schema.RebalancePolicy{MovesPerHour: cmp.Or(r.movesPerHour, schema.DefaultMovesPerHour), EmptyBelow: r.emptyBelow}
	}
	return p
}

// randomRoot grants each user a little more than the catalogue asks for at
// first, so that growth meets a quota; or so many percent of that.
func randomRoot(percent map[string]int) *schema.Package {
	p := Root(20, users...)
	p.Objects.Cells[0].Registries = map[string]schema.CellRegistry{packageServer: {Mirrors: []string{packageMirror}}}
	for _, u := range users {
		p.Objects.Quotas = append(p.Objects.Quotas, schema.Quota{
			Name: u + "-batch", User: u, Cell: cellName, Band: schema.BandBatch,
			Resources: schema.Resources{CPUMilli: 3200, RAMBytes: 1 << 40, DiskBytes: 1 << 40}, Tasks: 100,
		})
		p.Origins[schema.ObjectKey{Kind: schema.KindQuota, Name: u + "-batch"}] = schema.Position{Path: "batch.cue", Line: 1, Column: 1}
	}
	for i := range p.Objects.Quotas {
		q := &p.Objects.Quotas[i]
		if share := percent[q.User]; share > 0 {
			q.CPUMilli, q.Tasks = q.CPUMilli*int64(share)/100, q.Tasks*share/100
		}
	}
	return p
}

// catalogue returns what jobs each user of a world may have.
func (c Config) catalogue() []template {
	switch {
	case c.Gangs:
		return gangJobs
	case c.Tight:
		return tightJobs
	}
	return templates
}

// allJobs returns the names of the jobs of all users' catalogues, as user/job.
func (c Config) allJobs() []string {
	var out []string
	for _, u := range users {
		for _, t := range c.catalogue() {
			out = append(out, u+"/"+t.name)
		}
	}
	return out
}

// job returns how the n-th job of all users' catalogues stands, and whose it is.
func (r *repository) job(n int) (user string, d *declared, t template) {
	n = modulo(n, len(users)*len(r.catalogue))
	user = users[n%len(users)]
	return user, &r.jobs[user][n/len(users)], r.catalogue[n/len(users)]
}

// write makes the package of a user's directory anew.
func (r *repository) write(user string) {
	dir := "teams/" + user
	switch {
	case r.gone[user]:
		delete(r.packages, dir)
	case r.broken[user]:
		r.packages[dir] = nil
	default:
		p := Team(user)
		for i, d := range r.jobs[user] {
			if d.there {
				n := len(p.Objects.Jobs)
				r.catalogue[i].add(p, d)
				protect(p, n, d)
				if r.picky {
					specify(p, n, d, r.first)
				}
			}
		}
		if i := slices.Index(users, user); i < 2 {
			addLogin(p, []string{packageServer, packageMirror}[i], r.jobs[user][0].shift%4)
		}
		r.packages[dir] = p
	}
}

// addJob adds a job to the package of its user's directory.
func addJob(p *schema.Package, j schema.Job) {
	j.User, j.Cell = p.Dir[len("teams/"):], cellName
	p.Objects.Jobs = append(p.Objects.Jobs, j)
	p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}] = schema.Position{Path: p.Dir + "/jobs.cue", Line: len(p.Objects.Jobs), Column: 1}
}

// modulo returns n modulo m, from 0 to m-1 for any n.
func modulo(n, m int) int { return (n%m + m) % m }
