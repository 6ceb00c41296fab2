# Sends requests to the door, each over a connection of its own: so many, or until there is a file
# of that name. Prints how many failed, which is an error, and who answered. It finds the door by
# asking the cell, at MUSTER_MASTER. Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my $http = HTTP::Tiny->new(timeout => 10, keep_alive => 0);
my $answer = $http->get("$ENV{MUSTER_MASTER}/v1/endpoints?ready=1&name=edge/door");
$answer->{success} or die "$ENV{MUSTER_MASTER}: $answer->{status} $answer->{reason}\n";
my $door = decode_json($answer->{content})->{items}[0] or die "the door is not ready\n";
$| = 1;
my ($sent, $failed, %by) = (0, 0);
until ($ARGV[0] =~ /^\d+$/ ? $sent == $ARGV[0] : -e $ARGV[0]) {
    my $got = $http->get("http://$door->{address}:$door->{ports}{http}/");
    if ($got->{success}) { $by{$got->{content}}++ }
    else { $failed++; print STDERR "$got->{status} $got->{reason}\n" }
    print "asking\n" if ++$sent == 1;
    select undef, undef, undef, 0.02;
}
print "$sent requests, $failed failed\n", sort keys %by;
exit 1 if $failed;
