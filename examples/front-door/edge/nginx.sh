# Runs nginx, and beside it keeps its list of servers. If either ends, so does the task, which is started again.
read -r DOOR _ </proc/self/stat # the number of this process, which becomes nginx
export DOOR
rm -f nginx.conf nginx.pid # of a run before this one
mkdir -p tmp
{ perl -e "$FOLLOW" || :; kill "$DOOR"; } &
until [ -e nginx.conf ]; do sleep 0.1; done
exec nginx -p "$PWD/" -c nginx.conf -e stderr -g 'daemon off;'
