# Counts the primes from PER_TASK * MUSTER_TASK_INDEX on, PER_TASK numbers.
from=$((PER_TASK * MUSTER_TASK_INDEX))
to=$((from + PER_TASK))
n=$from
count=0
while [ "$n" -lt "$to" ]; do
	prime=$((n > 1))
	d=2
	while [ $((d * d)) -le "$n" ]; do
		if [ $((n % d)) -eq 0 ]; then
			prime=0
			break
		fi
		d=$((d + 1))
	done
	count=$((count + prime))
	n=$((n + 1))
done
echo "$count primes from $from to $((to - 1))"
