package pack

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/placement"
)

const (
	threeNodes = "sn,cpu_milli,memory_mib\na,2000,1024\nb,2000,1024\nc,2000,1024\n"
	threeTasks = "name,memory_mib,cpu_milli\nx,512,1000\ny,512,1000\nz,512,1000\n"
	gpuNodes   = "sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,2,T4\nb,8000,8192,2,T4\n"
)

func TestSimulate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, nodes, tasks, want string
		q                        Request
	}{
		{
			name: "two machines hold three halves", nodes: threeNodes, tasks: threeTasks,
			want: "hybrid compaction, GPUs as devices: 2.00 machines (90th percentile of 11 seeds, at most 0 tasks pending; deviation 0.00; 3 machines, 3 tasks)\n",
		},
		{
			name: "other columns, another order, spaces, fractions and a byte order mark", q: Request{Seeds: 1},
			nodes: "\ufeffzone, memory_mib ,sn,cpu_milli\nz1,1024.9,a,2000.0\nz1,1024, b ,2e3\n", tasks: "cpu_milli,qos,name,memory_mib\n999.5,LS,x,512\n1000,BE,\"y\n\",512\n",
			want: "hybrid compaction, GPUs as devices: 1.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 2 tasks)\n",
		},
		{
			name: "too much for all machines", nodes: threeNodes, tasks: "name,memory_mib,cpu_milli\nx,512,3000\n", q: Request{Seeds: 2},
			want: "hybrid compaction, GPUs as devices: 4.00 machines (90th percentile of 2 seeds, at most 0 tasks pending; for 2 of them all machines were too few, counted as one more; deviation 0.00; 3 machines, 1 tasks)\n",
		},
		{
			name: "failed tasks are left out", nodes: threeNodes, tasks: "name,memory_mib,cpu_milli,pod_phase\nx,512,2000,Failed\ny,1,2000,Running\n", q: Request{Seeds: 1},
			want: "hybrid compaction, GPUs as devices: 1.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 3 machines, 1 tasks)\n",
		},
		{
			name: "or not", nodes: threeNodes, tasks: "name,memory_mib,cpu_milli,pod_phase\nx,512,2000,Failed\ny,1,2000,Running\n", q: Request{Seeds: 1, AllPhases: true},
			want: "hybrid compaction, GPUs as devices: 2.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 3 machines, 2 tasks)\n",
		},
		{
			name: "without gpu_milli GPUs are whole: two tasks need two machines, as devices", nodes: gpuNodes, q: Request{Seeds: 1},
			tasks: "name,cpu_milli,memory_mib,num_gpu\nx,1,1,2\ny,1,1,1\n",
			want:  "hybrid compaction, GPUs as devices: 2.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 2 tasks)\n",
		},
		{
			name: "and as one amount", nodes: gpuNodes, q: Request{Seeds: 1, GPUs: "scalar"},
			tasks: "name,cpu_milli,memory_mib,num_gpu\nx,1,1,2\ny,1,1,1\n",
			want:  "hybrid compaction, GPUs as scalar: 2.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 2 tasks)\n",
		},
		{
			name: "ignored", nodes: gpuNodes, q: Request{Seeds: 1, GPUs: "ignored"},
			tasks: "name,cpu_milli,memory_mib,num_gpu\nx,1,1,2\ny,1,1,1\n",
			want:  "hybrid compaction, GPUs as ignored: 1.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 2 tasks)\n",
		},
		{
			// 600 + 600 do not fit on one of the two GPUs, but 2 of them on two.
			name: "shares of a device", nodes: gpuNodes, q: Request{Seeds: 1},
			tasks: "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,1,600\ny,1,1,1,600\nz,1,1,1,600\n",
			want:  "hybrid compaction, GPUs as devices: 2.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 3 tasks)\n",
		},
		{
			name: "shares of an amount", nodes: gpuNodes, q: Request{Seeds: 1, GPUs: "scalar"},
			tasks: "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nx,1,1,1,600\ny,1,1,1,600\nz,1,1,1,600\n",
			want:  "hybrid compaction, GPUs as scalar: 1.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 2 machines, 3 tasks)\n",
		},
		{
			name: "all GPUs allocated", nodes: gpuNodes, q: Request{Seeds: 2, Measure: "gpu-at-130", Policy: "random"},
			tasks: "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\nx,1,1,1,500,V100| T4 \n",
			want:  "random gpu-at-130, GPUs as devices: 100.00 % of GPU (mean of 2 seeds; deviation 0.00; 2 machines, 11 tasks)\n",
		},
		{
			// Both plan on the same machine first.
			name: "two schedulers that conflict", nodes: threeNodes, q: Request{Seeds: 1, Schedulers: 2},
			tasks: "name,cpu_milli,memory_mib\nu,2000,1\nv,2000,1\nw,2000,1\n",
			want:  "hybrid compaction, GPUs as devices: 3.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; 2 schedulers, 1 conflict; deviation 0.00; 3 machines, 3 tasks)\n",
		},
		{
			name: "the largest amounts", q: Request{Seeds: 1},
			nodes: "sn,cpu_milli,memory_mib,gpu\na,1073741824,1073741824,1024\n", tasks: "name,cpu_milli,memory_mib,num_gpu\nx,1073741824,1073741824,1024\n",
			want: "hybrid compaction, GPUs as devices: 1.00 machines (90th percentile of 1 seeds, at most 0 tasks pending; deviation 0.00; 1 machines, 1 tasks)\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.q.Nodes, c.q.Tasks = strings.NewReader(c.nodes), strings.NewReader(c.tasks)
			r, err := Simulate(c.q)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			if err := r.WriteText(&b); err != nil || b.String() != c.want {
				t.Errorf("%v, got\n%s want\n%s", err, b.String(), c.want)
			}
		})
	}
}

func TestSimulateRefuses(t *testing.T) {
	t.Parallel()
	const header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
	for _, c := range []struct {
		name, nodes, tasks, want string
		q                        Request
	}{
		{name: "empty file", nodes: "-", want: `n.csv:1: the file is empty: want a header with the columns sn, cpu_milli, memory_mib`},
		{name: "nothing but a header", tasks: header, want: `t.csv:1: nothing follows the header: want a row or more`},
		{name: "no column", nodes: "sn,cpu_milli\n", want: `n.csv:1: header "sn,cpu_milli" has no column "memory_mib": want sn, cpu_milli, memory_mib`},
		{name: "a column twice", nodes: "sn,cpu_milli,memory_mib,sn\n", want: `n.csv:1: column "sn" is there twice: want each once`},
		{name: "no number", tasks: header + "x,much,1,0,0\n", want: `t.csv:2: column cpu_milli: "much" is not a number from 0 to 1073741824`},
		{name: "less than nothing", tasks: header + "x,1,1,0,0\nx,1,-1,0,0\n", want: `t.csv:3: column memory_mib: "-1" is not a number from 0 to 1073741824`},
		{name: "not a number", tasks: header + "x,NaN,1,0,0\n", want: `t.csv:2: column cpu_milli: "NaN" is not a number from 0 to 1073741824`},
		{name: "huge", nodes: "sn,cpu_milli,memory_mib\na,1,1e18\n", want: `n.csv:2: column memory_mib: "1e18" is not a number from 0 to 1073741824`},
		{name: "infinite", nodes: "sn,cpu_milli,memory_mib\na,Inf,1\n", want: `n.csv:2: column cpu_milli: "Inf" is not a number from 0 to 1073741824`},
		{name: "a million GPUs", nodes: "sn,cpu_milli,memory_mib,gpu\na,1,1,1000000\n", want: `n.csv:2: column gpu: "1000000" is not a number from 0 to 1024`},
		{name: "more than a GPU of one", tasks: header + "x,1,1,1,1500\n", want: `t.csv:2: column gpu_milli: "1500" is not a number from 0 to 1000`},
		{name: "a share of two", tasks: header + "x,1,1,2,500\n", want: `t.csv:2: column gpu_milli: a share can be asked of one GPU only, not of 2: want 1000`},
		{name: "a share of none", tasks: header + "x,1,1,0,500\n", want: `t.csv:2: column gpu_milli: is asked of no GPU: want num_gpu 1 or more, or gpu_milli 0`},
		{name: "a machine twice", nodes: "sn,cpu_milli,memory_mib\na,1,1\nb,1,1\na,1,1\n", want: `n.csv:4: column sn: machine "a" is on line 2 already: want each once`},
		{name: "a machine without a name", nodes: "sn,cpu_milli,memory_mib\n,1,1\n", want: `n.csv:2: column sn: want the machine's name, not nothing`},
		{name: "a row too short", tasks: header + "x,1\n", want: `t.csv:2: wrong number of fields`},
		{name: "a quote", tasks: header + "x,\"1,1,0,0\n", want: `t.csv:2: extraneous or missing " in quoted-field`},
		{name: "the line of a row after a long one", tasks: header + "\"x\n\ny\",1,1,0,0\nz,1,?,0,0\n", want: `t.csv:5: column memory_mib: "?" is not a number from 0 to 1073741824`},
		{name: "policy", q: Request{Policy: "good"}, want: `policy "good": want hybrid, best-fit, worst-fit, dot-product, cosine or random`},
		{name: "measure", q: Request{Measure: "size"}, want: `measure "size": want compaction, gpu-at-130 or churn`},
		{name: "gpus", q: Request{GPUs: "some"}, want: `gpus "some": want devices, scalar or ignored`},
		{name: "seeds", q: Request{Seeds: -1}, want: `seeds -1: want at least 1`},
		{name: "schedulers", q: Request{Schedulers: 65}, want: `schedulers 65: want 1 to 64`},
		{name: "load", q: Request{Load: 0.5}, want: `load 0.5: only measure churn has one`},
		{name: "load of churn", q: Request{Measure: "churn", Load: 3}, want: `load 3: want more than 0 and at most 2`},
		{name: "schedulers of churn", q: Request{Measure: "churn", Schedulers: 2}, want: `schedulers 2: measure churn has one`},
		{name: "churn of what is too large", q: Request{Measure: "churn"}, tasks: "name,cpu_milli,memory_mib\nx,3000,1\n", want: "no task of the trace fits on any of its machines"},
		{name: "churn of very small tasks", q: Request{Measure: "churn"}, nodes: "sn,cpu_milli,memory_mib\na,1073741824,1\n", tasks: "name,cpu_milli,memory_mib\nx,1,0\n", want: "a load of 0.9 takes 966367642 tasks like these at a time: want at most 5000000"},
		{name: "no GPU", q: Request{Measure: "gpu-at-130"}, want: "the trace has no GPUs, or nothing asks for one"},
		{
			name: "crumbs of very many GPUs", q: Request{Measure: "gpu-at-130"}, want: "130% of the GPUs takes 6656000 tasks like these: want at most 5000000",
			nodes: "sn,cpu_milli,memory_mib,gpu\na,1,1,1024\nb,1,1,1024\nc,1,1,1024\nd,1,1,1024\ne,1,1,1024\n", tasks: header + "x,0,0,1,1\n",
		},
		{name: "all failed", tasks: "name,cpu_milli,memory_mib,pod_phase\nx,1,1,Failed\n", want: "no task is left but those whose phase is Failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.nodes == "" {
				c.nodes = threeNodes
			}
			if c.tasks == "" {
				c.tasks = threeTasks
			}
			c.q.Nodes, c.q.Tasks = strings.NewReader(strings.TrimPrefix(c.nodes, "-")), strings.NewReader(c.tasks)
			c.q.NodesFile, c.q.TasksFile = "n.csv", "t.csv"
			if _, err := Simulate(c.q); err == nil || err.Error() != c.want {
				t.Fatalf("error %v, want %s", err, c.want)
			}
		})
	}
}

// TestSchedulers: several schedulers that plan beside each other place as many tasks
// as one does, and never more than the machines hold.
func TestSchedulers(t *testing.T) {
	t.Parallel()
	nodes := []Node{{Name: "a", CPUMilli: 64_000, RAMMiB: 1 << 20}, {Name: "b", CPUMilli: 64_000, RAMMiB: 1 << 20}, {Name: "c", CPUMilli: 64_000, RAMMiB: 1 << 20}}
	tasks := make([]Task, 200) // 8 more than there is room for
	for i := range tasks {
		tasks[i] = Task{CPUMilli: 1000}
	}
	for _, n := range []int{1, 2, 5} {
		s := placement.NewSnapshot(machines(nodes, GPUDevices), nil)
		if p := place(s, asks(tasks, GPUDevices), n, 1); len(p.on) != 192 || (n == 1) != (p.conflicts == 0) {
			t.Errorf("%d schedulers: %d tasks are placed, want 192, with %d conflicts", n, len(p.on), p.conflicts)
		}
	}
}

func TestResultAsJSON(t *testing.T) {
	t.Parallel()
	r, err := Simulate(Request{Nodes: strings.NewReader(threeNodes), Tasks: strings.NewReader(threeTasks), Seeds: 3})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(r); err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"measure":"compaction","policy":"hybrid","gpus":"devices","machines":3,"tasks":3,"pendingAllowed":0,` +
		`"seeds":3,"value":2,"deviation":0,"perSeed":[2,2,2],"schedulers":1,"conflicts":0,"overflowed":0}` + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("the JSON changed, which others read (-want +got):\n%s", diff)
	}
}
