# Writes haproxy.cfg, with a server for each endpoint of the cell that is ready and has the
# labels SELECTOR, and again whenever they change; HAProxy then reads it without
# closing its port. Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use IO::Socket::UNIX;
use JSON::PP;

my $master = $ENV{DOOR};    # run.sh, which becomes HAProxy
my $http = HTTP::Tiny->new(timeout => 60);
my $list = "http://$ENV{CELL_API}/v1/endpoints?ready=1&" . $http->www_form_urlencode({ selector => $ENV{SELECTOR} });

sub servers {
    my ($config, $after, $version) = ('', '');
    do {
        my $answer = $http->get("$list&limit=1000&continue=$after");
        $answer->{success} or die "$ENV{CELL_API}: $answer->{status} $answer->{reason}\n";
        my $page = decode_json($answer->{content});
        ($after, $version) = ($page->{continue}, $version // $page->{version});
        for my $e (@{ $page->{items} }) {
            (my $name = $e->{name}) =~ tr{/}{.};
            $config .= "    server $name $e->{address}:$e->{ports}{http}\n" if $e->{ports}{http};
        }
    } while ($after ne '');
    return ($config, $version);
}

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
my ($is, $configs) = ('', 0);
while (1) {
    my ($servers, $version) = eval { servers() };
    if (!defined $version) {    # the cell's master may be away for a while
        print STDERR $@;
        sleep 1;
        next;
    }
    my $config = <<"EOF";
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
    if ($config ne $is) {
        open my $file, '>', 'haproxy.cfg.new' or die "haproxy.cfg.new: $!\n";
        $configs++;
        print $file "global\n    description $configs\n$config";
        close $file or die "haproxy.cfg.new: $!\n";
        rename 'haproxy.cfg.new', 'haproxy.cfg' or die "haproxy.cfg: $!\n";
        reload($configs);
        $is = $config;
    }
    # Nothing is to be done until the list is another one.
    my $answer = $http->get("$list&watch=1&version=$version", {
        data_callback => sub { die "changed\n" if $_[0] =~ /^event: (?:added|changed|removed|error)$/m },
    });
    sleep 1 unless $answer->{content} =~ /^changed/;
}
