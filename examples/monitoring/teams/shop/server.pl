# Answers each request with the count of requests, as Prometheus reads it.
use strict;
use warnings;
use IO::Socket::INET;

$SIG{TERM} = sub { exit 0 };
my $listener = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1',
    LocalPort => $ENV{MUSTER_PORT_METRICS},
    Listen    => 16,
    ReuseAddr => 1,
) or die "listen on port $ENV{MUSTER_PORT_METRICS}: $!\n";
my $requests = 0;
while (my $client = $listener->accept) {
    while (my $line = <$client>) { last if $line =~ /^\r?\n/ }
    $requests++;
    my $answer = "# TYPE shop_requests_total counter\nshop_requests_total $requests\n";
    print $client "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n",
        "Content-Length: ", length $answer, "\r\n\r\n", $answer;
    close $client;
}
