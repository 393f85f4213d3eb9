#!/bin/sh
# Take no new messages: pause.sh QUEUE
set -e
touch "spool/$1/paused"
