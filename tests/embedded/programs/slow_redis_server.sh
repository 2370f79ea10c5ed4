#!/bin/sh
# A redis-server, `real-redis-server` beside this, that takes half a second to end and makes the file `ending` first.
here=$(dirname "$0")
[ "$1" = --version ] && exec "$here/real-redis-server" --version
"$here/real-redis-server" "$@" &
server=$!
trap 'touch "$here/ending"; sleep 0.5; kill $server' TERM
wait
wait
