package main

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/cell"
	"github.com/musterhq/muster/cmd/internal/nodump"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/pki"
)

// maxLostAfter is the most that --lost-after may be.
const maxLostAfter = 24 * time.Hour

// masterFlags are those that master and dev share.
type masterFlags struct {
	cell, branch, listen, logLevel string
	poll                           time.Duration
	auth                           git.Auth
	pki, linkListen                string
	machineLife                    lifeFlag
	noExec                         bool
	secretIdentity                 string
	lostAfter, planTimeout         time.Duration
	placementWorkers               int
	socket                         string
	users                          userFlag
}

func (f *masterFlags) add(c *cobra.Command, logLevel string) {
	c.Flags().StringVar(&f.cell, "cell", "", "name of the cell (default: the data directory's, else the only one that the repository declares)")
	c.Flags().StringVar(&f.branch, "branch", "", "branch to follow (default: the repository's HEAD)")
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0", "listen address of API, status page and metrics; without --pki a loopback address; port 0 chooses a free port")
	c.Flags().StringVar(&f.socket, "socket", "", "unix socket of the API, preferred by commands on this machine (default: link/api.sock in the data directory; with --pki none)")
	c.Flags().Var(&f.users, "allow-user", "user of this machine who may use the API, beside root and the master's user: a name, a number, or FIRST-LAST; with the suffix :read-only without changes, with :plan only for muster plan; may be repeated")
	f.machineLife = lifeFlag(24 * time.Hour)
	c.Flags().StringVar(&f.pki, "pki", "", "directory of the cell's certificate authority, created by muster pki init: API and agent link use mutual TLS")
	c.Flags().StringVar(&f.secretIdentity, "secret-identity", "", "file of age identities that open the cell's secrets, readable by its owner only; muster secret keys --new creates one (default: none, and secrets are not opened)")
	c.Flags().StringVar(&f.linkListen, "link-listen", "", "listen address for agents on other machines, such as :7421; needs --pki (default: none)")
	c.Flags().Var(&f.machineLife, "machine-life", "validity of a machine's certificate, which its agent renews after two thirds of it, 5s to 90d")
	c.Flags().DurationVar(&f.poll, "poll", 30*time.Second, "how often to poll for new commits; those of a local repository are seen at once")
	c.Flags().DurationVar(&f.lostAfter, "lost-after", model.DefaultLostAfter, "how long a machine may be silent before its tasks are rescheduled, 15s to 24h; jobs can override it")
	c.Flags().IntVar(&f.placementWorkers, "placement-workers", 0, "how many machines are looked at at a time when tasks are placed, 1 to 32; where tasks are placed does not depend on it (default: one for each processor)")
	c.Flags().BoolVar(&f.noExec, "no-exec", false, "disable muster exec")
	c.Flags().DurationVar(&f.planTimeout, "plan-timeout", history.DefaultTimeout, "how long planning a commit may take, in a process beside the master, for muster history; 0 for no plans")
	authFlags(c.Flags(), &f.auth)
	c.Flags().StringVar(&f.logLevel, "log-level", logLevel, "minimum level of what is logged to stderr: debug, info, warn, error")
}

// logger returns a logger to std.err of the level that the flags say.
func (f *masterFlags) logger(std stdio) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, invalid("such as --log-level info", "--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	return slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: level})), nil
}

// config fills the parts of a master's configuration that do not depend on the
// command.
func (f *masterFlags) config(std stdio) (cell.MasterConfig, error) {
	log, err := f.logger(std)
	if err != nil {
		return cell.MasterConfig{}, err
	}
	if f.secretIdentity != "" {
		if err := nodump.Set(); err != nil {
			return cell.MasterConfig{}, err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return cell.MasterConfig{}, err
	}
	life := time.Duration(f.machineLife)
	if life < pki.MinLife || life > pki.MaxLife {
		return cell.MasterConfig{}, invalid("such as --machine-life 1d", "--machine-life %s: want 5s to 90d", f.machineLife.String())
	}
	if f.poll <= 0 {
		return cell.MasterConfig{}, invalid("such as --poll 30s; those of a local repository are seen at once all the same", "--poll %s: want more than 0", f.poll)
	}
	if f.lostAfter < model.MinLostAfter || f.lostAfter > maxLostAfter {
		return cell.MasterConfig{}, invalid("a job overrides it with its field silence", "--lost-after %s: want 15s to 24h", f.lostAfter)
	}
	if f.planTimeout < 0 {
		return cell.MasterConfig{}, invalid("such as --plan-timeout 2m; 0 for no plans", "--plan-timeout %s: want 0 or more", f.planTimeout)
	}
	if f.placementWorkers < 0 || f.placementWorkers > cell.MostPlacementWorkers {
		return cell.MasterConfig{}, invalid("without the flag there is one for each processor", "--placement-workers %d: want 1 to %d", f.placementWorkers, cell.MostPlacementWorkers)
	}
	return cell.MasterConfig{
		PlacementWorkers: f.placementWorkers,
		LostAfter:        f.lostAfter, PKI: f.pki, SecretIdentity: f.secretIdentity, LinkListen: f.linkListen, MachineLife: life,
		Cell: f.cell, Branch: f.branch, Listen: f.listen, Poll: f.poll, Auth: f.auth, Log: log,
		Exe: exe, Release: version, NoExec: f.noExec, Socket: f.socket, Users: f.users.users, PlanTimeout: f.planTimeout,
		Ready: func(name, address, page string) {
			screen.Printf(std.out, "muster: cell %s at %s\n", name, address)
			if page != "" {
				screen.Printf(std.out, "muster: status page at %s (muster page prints an address with a password)\n", page)
			}
		},
	}, nil
}

const masterHelp = `Run the master of a cell: follow a config repository and make the cell's
machines do what it says. The first line on stdout is the address of its API.

Without --pki it serves this machine only: the API on loopback and on a unix socket, for
root, the user that the master runs as (unless that is root, on the socket only, since
tasks may run as that user) and the users of --allow-user; and agents on a unix socket.
Tasks are always refused. With --pki it can listen on any address: all connections use
TLS 1.3, and clients and agents authenticate with certificates of the cell's authority;
see muster pki.

Tasks keep running when the master stops, however it stops; a master that starts with
the same data directory continues from its state.

With --etcd the cell's state is in an etcd cluster, which must be dedicated to this
cell. Several masters may use it, each with a data directory of its own: one is the
leader, the others are on standby and take over when its lease (--etcd-lease) expires.
Agents connect to all of them: give them the addresses of all masters.

The master writes snapshots of the store, from which "muster master restore" restores a
data directory.`

const masterExample = `  muster master --repo /srv/fleet.git --data-dir /var/lib/muster --listen 127.0.0.1:7420
  muster master --repo URL --data-dir /var/lib/muster --pki /etc/muster/pki --listen :7420 --link-listen :7421 \
    --etcd https://etcd-1:2379,https://etcd-2:2379,https://etcd-3:2379 \
    --etcd-ca ca.pem --etcd-cert master.pem --etcd-key master-key.pem
  muster-agent --cell local --master unix:/var/lib/muster/link/agent.sock --state-dir /var/lib/muster-agent`

func newMaster(std stdio) *cobra.Command {
	var f masterFlags
	var repo, dataDir, linkSocket, profiles string
	var etcd etcdFlags
	var snapshotEvery, checkpointEvery time.Duration
	var snapshotKeep, checkpointKeep int
	c := &cobra.Command{
		Use:     "master --repo URL --data-dir DIR",
		Short:   "run the master of a cell",
		Long:    masterHelp,
		Example: masterExample,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if repo == "" || dataDir == "" {
				return invalid("usage: "+cmd.UseLine(), "muster master needs --repo and --data-dir")
			}
			cfg, err := f.config(std)
			if err != nil {
				return err
			}
			cfg.Repo, cfg.DataDir, cfg.Link = repo, dataDir, linkSocket
			if cfg.Etcd, err = etcd.config(); err != nil {
				return err
			}
			cfg.SnapshotEvery, cfg.SnapshotKeep, cfg.Profiles = snapshotEvery, snapshotKeep, profiles
			cfg.CheckpointEvery, cfg.CheckpointKeep = checkpointEvery, checkpointKeep
			if err := checkKept("snapshot", snapshotEvery, snapshotKeep); err != nil {
				return err
			}
			if err := checkKept("checkpoint", checkpointEvery, checkpointKeep); err != nil {
				return err
			}
			return cell.RunMaster(cmd.Context(), cfg)
		},
	}
	f.add(c, "info")
	c.Flags().StringVar(&repo, "repo", "", "config repository: a path or a URL")
	c.Flags().StringVar(&dataDir, "data-dir", "", "data directory of the master")
	etcd.add(c)
	c.Flags().DurationVar(&snapshotEvery, "snapshot-every", time.Hour, "how often a snapshot of the store is written to the directory snapshots in the data directory, if it has changed; 0 for never")
	c.Flags().IntVar(&snapshotKeep, "snapshot-keep", 24, "how many snapshots are kept")
	c.Flags().DurationVar(&checkpointEvery, "checkpoint-every", time.Hour, "how often a checkpoint, without values, is saved to the directory checkpoints in the data directory of the master that leads; 0 for never")
	c.Flags().IntVar(&checkpointKeep, "checkpoint-keep", 24, "how many checkpoints are kept")
	c.Flags().StringVar(&linkSocket, "link", "", "unix socket for agents (default: link/agent.sock in the data directory)")
	c.Flags().StringVar(&profiles, "pprof", "", "loopback listen address for pprof, such as 127.0.0.1:6060; accessible to every user of this machine (default: none)")
	c.AddCommand(newRestore(std))
	return c
}

// checkKept errs unless what is a snapshot, or a checkpoint, can be made so often, and so many
// kept.
func checkKept(what string, every time.Duration, keep int) error {
	if every < 0 || every > 0 && every < time.Second {
		return invalid(fmt.Sprintf("such as --%s-every 1h; 0 for never", what), "--%s-every %s: want 0, or at least 1s", what, every)
	}
	if keep < 1 {
		return invalid(fmt.Sprintf("such as --%s-keep 24; --%s-every 0 takes none", what, what), "--%s-keep %d: want at least 1", what, keep)
	}
	return nil
}
