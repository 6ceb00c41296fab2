# Prints what Prometheus scrapes, and how that goes: the name of the scrape job, the
# muster job, and up or down. It finds Prometheus by asking the cell, at
# MUSTER_MASTER. Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

sub fetch {
    my $answer = HTTP::Tiny->new(timeout => 5)->get($_[0]);
    $answer->{success} or die "$_[0]: $answer->{status} $answer->{reason}\n";
    return decode_json($answer->{content});
}
my ($task) = grep { $_->{name} eq 'monitor/prometheus/0' } @{ fetch("$ENV{MUSTER_MASTER}/v1/status")->{tasks} };
my $targets = fetch("http://127.0.0.1:$task->{ports}{http}/api/v1/targets");
for my $target (sort { $a->{scrapeUrl} cmp $b->{scrapeUrl} } @{ $targets->{data}{activeTargets} }) {
    my $labels = $target->{labels};
    print join(' ', $labels->{job}, $labels->{muster_job} // '-', $labels->{index} // '-', $target->{health}), "\n";
}
