# Writes targets.json, as Prometheus's file_sd_configs wants it: each running task
# of the cell that has a port with the name "metrics". Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my $answer = HTTP::Tiny->new(timeout => 5)->get("http://$ENV{CELL_API}/v1/status");
$answer->{success} or die "$ENV{CELL_API}: $answer->{status} $answer->{reason}\n";
my @groups;
for my $task (@{ decode_json($answer->{content})->{tasks} }) {
    my $port = $task->{ports}{metrics};
    next unless $port && $task->{state} eq 'running';
    my ($user, $job, $index) = split m{/}, $task->{name};
    push @groups, {
        targets => ["127.0.0.1:$port"],    # in a cell of many machines: the machine's address
        labels  => { user => $user, muster_job => $job, index => $index, machine => $task->{machine} },
    };
}
open my $file, '>', 'targets.json.new' or die "targets.json.new: $!\n";
print $file JSON::PP->new->canonical->encode(\@groups);
close $file or die "targets.json.new: $!\n";
rename 'targets.json.new', 'targets.json' or die "targets.json: $!\n";
