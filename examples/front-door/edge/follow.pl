# Writes haproxy.cfg, with a server for each endpoint of the cell that is ready and has the
# labels SELECTOR, and again whenever they change; HAProxy then reads it without
# closing its port. Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
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

# whether run.sh has become it; else it will read what is written
sub haproxy {
    open my $comm, '<', "/proc/$master/comm" or return 0;
    return readline($comm) eq "haproxy\n";
}

my $is = '';
while (1) {
    my ($servers, $version) = eval { servers() };
    if (!defined $version) {    # the cell's master may be away for a while
        print STDERR $@;
        sleep 1;
        next;
    }
    my $config = <<"EOF";
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
        print $file $config;
        close $file or die "haproxy.cfg.new: $!\n";
        rename 'haproxy.cfg.new', 'haproxy.cfg' or die "haproxy.cfg: $!\n";
        kill USR2 => $master if haproxy();
        $is = $config;
    }
    # Nothing is to be done until the list is another one.
    my $answer = $http->get("$list&watch=1&version=$version", {
        data_callback => sub { die "changed\n" if $_[0] =~ /^event: (?:added|changed|removed|error)$/m },
    });
    sleep 1 unless $answer->{content} =~ /^changed/;
}
