package readme

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// ending is a follower that ends once there is a HAProxy.
const ending = `
open my $file, '>', 'haproxy.cfg' or die;
print $file "defaults\n mode http\n timeout connect 2s\n timeout client 2s\n timeout server 2s\nfrontend door\n bind unix\@door.sock\n";
close $file;
my $comm = '';
until ($comm eq "haproxy\n") {
    open my $of, '<', '/proc/' . ($ENV{DOOR} // getppid) . '/comm' or exit 1;
    $comm = readline $of;
    select undef, undef, undef, 0.01;
}
exit 3;
`

// TestFrontDoorFollower: a door that does not follow the cell any more ends, so that it is started again.
func TestFrontDoorFollower(t *testing.T) {
	t.Parallel()
	need(t, "haproxy")
	script, err := os.ReadFile(filepath.Join(root, examplesDir, frontDoor, "edge", "haproxy.sh"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-eu", "-c", string(script))
	said := &bytes.Buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = shortDir(t), said, said, time.Second
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin:/bin", "FOLLOW=" + ending}
	err = cmd.Run()
	if ctx.Err() != nil || err == nil {
		t.Errorf("it runs on, or has ended well: %v\n%s", err, said)
	}
}
