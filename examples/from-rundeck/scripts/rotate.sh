#!/bin/sh
# Rotate the access log of a server: rotate.sh SERVER KEEP
# The folder servers/SERVER stands for the server.
set -e
cd "servers/$1"
mv access.log "access.log.$(date +%s)"
touch access.log
ls -1r access.log.* | tail -n "+$(($2 + 1))" | xargs -r rm
