# Writes nginx.conf, with a server for each endpoint, whenever they change; nginx then reads it without
# closing its port.
my $master = $ENV{DOOR};    # nginx.sh, which becomes nginx
my $configs = 0;
follow(sub {
    my $servers = join '', map { "        server $_->[1];\n" } @_;
    # nginx takes no upstream without a server.
    my ($upstream, $answer) = $servers ? ("upstream tasks {\n$servers    }", 'proxy_pass http://tasks') : ('', 'return 503');
    put('nginx.conf', <<"EOF");
worker_processes 1;
pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path tmp;
    proxy_temp_path tmp;
    fastcgi_temp_path tmp;
    uwsgi_temp_path tmp;
    scgi_temp_path tmp;
    $upstream
    server {
        listen $ENV{MUSTER_PORT_HTTP};
        location / {
            proxy_connect_timeout 2s;
            $answer;
        }
    }
}
EOF
    return if !$configs++;    # nginx starts with it
    # A signal that comes before this file is there would end nginx.
    until (-s 'nginx.pid') { select undef, undef, undef, 0.1 }
    kill HUP => $master;
});
