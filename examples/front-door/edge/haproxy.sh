# Runs HAProxy, and beside it keeps its list of servers. If either ends, so does the task, which is started again.
read -r DOOR _ </proc/self/stat # the number of this process, which becomes HAProxy
export DOOR
rm -f haproxy.cfg haproxy.sock # of a run before this one
{ perl -e "$FOLLOW" || :; kill "$DOOR"; } &
until [ -e haproxy.cfg ]; do sleep 0.1; done
exec haproxy -W -db -f haproxy.cfg
