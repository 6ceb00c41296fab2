# Runs Prometheus, and beside it keeps the list of what to scrape. Both end with
# the task. They work in the task's own directory, which a new task does not
# inherit: what must outlast the task belongs into remote storage.
printf '%s' "$CONFIG" >prometheus.yml
echo '[]' >targets.json
while :; do
	perl -e "$DISCOVER" || true # the cell's master may be away for a while
	sleep 2
done &
exec prometheus \
	--config.file=prometheus.yml \
	--storage.tsdb.path=data \
	--web.listen-address="127.0.0.1:$MUSTER_PORT_HTTP"
