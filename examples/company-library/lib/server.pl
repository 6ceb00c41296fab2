# A web server that answers every request with its greeting. It needs no more of
# perl than Debian's perl-base, which is on every Debian.
use strict;
use warnings;
use IO::Socket::INET;

$| = 1;
$SIG{TERM} = sub { print "told to stop\n"; exit 0 };
my $listener = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1',
    LocalPort => $ENV{MUSTER_PORT_HTTP},
    Listen    => 16,
    ReuseAddr => 1,
) or die "listen on port $ENV{MUSTER_PORT_HTTP}: $!\n";
print "log level $ENV{LOG_LEVEL}, serving on port $ENV{MUSTER_PORT_HTTP}\n";
while (my $client = $listener->accept) {
    my $request = <$client> // '';
    while (my $line = <$client>) { last if $line =~ /^\r?\n/ }
    my $answer = "$ENV{GREETING} from $ENV{MUSTER_JOB}/$ENV{MUSTER_TASK_INDEX}\n";
    print $client "HTTP/1.0 200 OK\r\nContent-Length: ", length $answer, "\r\n\r\n", $answer;
    close $client;
}
