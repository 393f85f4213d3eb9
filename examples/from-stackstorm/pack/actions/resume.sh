#!/bin/sh
# Take messages again: resume.sh QUEUE
set -e
rm -f "spool/$1/paused"
