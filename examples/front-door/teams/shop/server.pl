# Answers each request with its index and version, and ends at once on SIGTERM.
use strict;
use warnings;
use IO::Socket::INET;

my $listener = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1',
    LocalPort => $ENV{MUSTER_PORT_HTTP},
    Listen    => 128,
    ReuseAddr => 1,
) or die "listen on port $ENV{MUSTER_PORT_HTTP}: $!\n";
while (my $client = $listener->accept) {
    while (my $line = <$client>) { last if $line =~ /^\r?\n/ }
    my $answer = "task $ENV{MUSTER_TASK_INDEX}, version $ENV{VERSION}\n";
    print $client "HTTP/1.0 200 OK\r\nContent-Length: ", length $answer, "\r\n\r\n", $answer;
    close $client;
}
