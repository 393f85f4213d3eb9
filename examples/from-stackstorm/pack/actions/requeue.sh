#!/bin/sh
# Move stuck messages back to the ready ones: requeue.sh QUEUE
set -e
count=0
for message in "spool/$1/stuck/"*; do
  [ -e "$message" ] || continue
  mv "$message" "spool/$1/ready/"
  count=$((count + 1))
done
echo "requeued $count"
