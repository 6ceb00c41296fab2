# Runs HAProxy, and beside it keeps its list of servers. Both end with the task.
perl -e "$FOLLOW" &
until [ -e haproxy.cfg ]; do sleep 0.1; done
exec haproxy -W -db -f haproxy.cfg
