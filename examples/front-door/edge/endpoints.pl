# Follows the endpoints of the cell that are ready and have the labels SELECTOR: what is common
# to all doors. Needs Debian's package perl.
use strict;
use warnings;
use HTTP::Tiny;
use JSON::PP;

my $http = HTTP::Tiny->new(timeout => 60);
my $list = "http://$ENV{CELL_API}/v1/endpoints?ready=1&" . $http->www_form_urlencode({ selector => $ENV{SELECTOR} });

# endpoints returns the version of the list, and of each endpoint in it a name and ADDRESS:PORT.
sub endpoints {
    my ($after, $version, @found) = ('');
    do {
        my $answer = $http->get("$list&limit=1000&continue=$after");
        $answer->{success} or die "$ENV{CELL_API}: $answer->{status} $answer->{reason}\n";
        my $page = decode_json($answer->{content});
        ($after, $version) = ($page->{continue}, $version // $page->{version});
        for my $e (@{ $page->{items} }) {
            push @found, [$e->{name} =~ tr{/}{.}r, "$e->{address}:$e->{ports}{http}"] if $e->{ports}{http};
        }
    } while ($after ne '');
    return ($version, @found);
}

# follow calls a function with the endpoints, and again whenever they change.
sub follow {
    my ($changed) = @_;
    my $is;
    while (1) {
        my ($version, @found) = eval { endpoints() };
        if (!defined $version) {    # the cell's master may be away for a while
            print STDERR $@;
            sleep 1;
            next;
        }
        my $now = join ' ', map { @$_ } @found;
        if (!defined $is || $is ne $now) {
            $changed->(@found);
            $is = $now;
        }
        # Nothing is to be done until the list is another one.
        my $answer = $http->get("$list&watch=1&version=$version", {
            data_callback => sub { die "changed\n" if $_[0] =~ /^event: (?:added|changed|removed|error)$/m },
        });
        sleep 1 unless $answer->{content} =~ /^changed/;
    }
}

# put writes a file, whole or not at all.
sub put {
    my ($name, $text) = @_;
    open my $file, '>', "$name.new" or die "$name.new: $!\n";
    print $file $text;
    close $file or die "$name.new: $!\n";
    rename "$name.new", $name or die "$name: $!\n";
}
