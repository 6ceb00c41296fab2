# Writes haproxy.cfg, with a server for each endpoint, whenever they change; HAProxy then reads it without
# closing its port.
use IO::Socket::UNIX;

my $master = $ENV{DOOR};    # haproxy.sh, which becomes HAProxy

# running returns the description of the configuration that HAProxy runs with, '' while it starts.
sub running {
    my $haproxy = IO::Socket::UNIX->new(Peer => 'haproxy.sock') or return '';
    print $haproxy "show info\n";
    return join('', readline $haproxy) =~ /^description: (\d+)$/m ? $1 : '';
}

# reload returns when HAProxy runs with the configuration of that description. A signal that
# comes while HAProxy starts is lost, or ends it, so that it is sent when HAProxy
# runs, and again if that was too early.
sub reload {
    my ($description) = @_;
    my $tries = 0;
    while ((my $is = running()) ne $description) {
        kill USR2 => $master if $is ne '' && $tries++ % 20 == 0;
        select undef, undef, undef, 0.1;
    }
}

$SIG{PIPE} = 'IGNORE';    # HAProxy may close its socket while it starts again
my $configs = 0;
follow(sub {
    my $servers = join '', map { "    server @$_\n" } @_;
    $configs++;
    put('haproxy.cfg', <<"EOF");
global
    description $configs
    stats socket unix\@haproxy.sock

defaults
    mode http
    timeout connect 2s
    timeout client 30s
    timeout server 30s
    retries 2
    option redispatch

frontend door
    bind :$ENV{MUSTER_PORT_HTTP}
    default_backend tasks

backend tasks
$servers
EOF
    reload($configs);
});
