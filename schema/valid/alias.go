package valid

// bandAlias maps what users of other systems write to a band.
var bandAlias = map[string]string{
	"prod": "production", "high": "production", "critical": "production", "system-cluster-critical": "monitoring",
	"best-effort": "free", "besteffort": "free", "low": "free", "none": "free", "default": "free", "dev": "free", "test": "free",
	"normal": "batch", "medium": "batch", "monitor": "monitoring",
}

// jobKindAlias maps what users of other systems write to a kind of job.
var jobKindAlias = map[string]string{
	"daemonset": "system", "global": "system", "sysbatch": "system", "cron": "batch", "cronjob": "batch", "job": "batch", "periodic": "batch",
	"deployment": "service", "statefulset": "service", "replicated": "service", "daemon": "service", "server": "service", "web": "service",
}

// kindAlias maps what users of other systems write to a kind.
var kindAlias = map[string]string{
	"deployment": "job", "deployments": "job", "statefulset": "job", "cronjob": "job", "daemonset": "job", "pod": "job",
	"workload": "job", "app": "job", "application": "job", "cluster": "cell", "datacenter": "cell", "namespace": "tenant",
	"team": "tenant", "owner": "tenant", "resourcequota": "quota", "group": "job", "task": "job",
	"node": "machine", "host": "machine", "priorityclass": "priority",
}

// family names the system whose files have a top-level field of this name.
var family = map[string]string{
	"apiVersion": "Kubernetes manifest", "kind": "Kubernetes manifest", "metadata": "Kubernetes manifest",
	"spec": "Kubernetes manifest", "data": "Kubernetes manifest", "status": "Kubernetes manifest",
	"services": "compose file", "version": "compose file", "networks": "compose file", "volumes": "compose file",
	"secrets": "compose file", "configs": "compose file", "resource": "Terraform configuration", "provider": "Terraform configuration",
	"variable": "Terraform configuration", "output": "Terraform configuration", "module": "Terraform configuration",
	"terraform": "Terraform configuration", "locals": "Terraform configuration",
}

func aliased(r *Rule, alias map[string]string) *Rule {
	r.Alias = alias
	return r
}

// appClassAlias maps what users of other systems write to a class.
var appClassAlias = map[string]string{
	"ls": "latency-sensitive", "latency": "latency-sensitive", "latencySensitive": "latency-sensitive", "latency_sensitive": "latency-sensitive",
	"service": "latency-sensitive", "Guaranteed": "latency-sensitive", "guaranteed": "latency-sensitive", "interactive": "latency-sensitive",
	"best-effort": "batch", "besteffort": "batch", "BestEffort": "batch", "background": "batch", "throughput": "batch",
}
