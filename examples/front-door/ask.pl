# ask.pl COUNT [JOB] sends so many requests to the door, or another, each over a connection of its own, and prints how many
# failed, which is an error, and who answered. It finds the door by asking the cell, at MUSTER_MASTER. Needs
# Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my $http = HTTP::Tiny->new(timeout => 10, keep_alive => 0);
my $name = $ARGV[1] // 'edge/door';
my $answer = $http->get("$ENV{MUSTER_MASTER}/v1/endpoints?ready=1&name=$name");
$answer->{success} or die "$ENV{MUSTER_MASTER}: $answer->{status} $answer->{reason}\n";
my $door = decode_json($answer->{content})->{items}[0] or die "$name is not ready\n";
my ($failed, %by) = (0);
for (1 .. $ARGV[0]) {
    my $got = $http->get("http://$door->{address}:$door->{ports}{http}/");
    if ($got->{success}) { $by{$got->{content}}++ }
    else { $failed++; print STDERR "$got->{status} $got->{reason}\n" }
    select undef, undef, undef, 0.02;
}
print "$ARGV[0] requests, $failed failed\n", sort keys %by;
exit 1 if $failed;
