#!/bin/sh
# The first process of an endpoint's process namespace: gives it the interop runner's fixed paths without touching
# the host, runs it, hands SIGTERM on, and takes everything with it when it ends.
set -eu
root=$1 implementations=$2 name=$3 stack=$4 certs=$5 www=$6 downloads=$7 logs=$8 hosts=$9

mount -t tmpfs -o size=16m,mode=0755 endpoint "$root"
for entry in /*; do
    case ${entry#/} in proc | tmp | www | certs | downloads | logs | stack | implementations) continue ;; esac
    if [ -L "$entry" ]; then
        cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then
        mkdir "$root$entry"
        mount --rbind "$entry" "$root$entry"
    fi
done
for place in proc tmp www certs downloads logs stack implementations; do mkdir "$root/$place"; done
mount -t proc proc "$root/proc"
mount -t tmpfs -o size=512m,mode=1777 tmp "$root/tmp"
mount --bind "$certs" "$root/certs"
mount --bind "$www" "$root/www"
mount --bind "$downloads" "$root/downloads"
mount --bind "$logs" "$root/logs"
mount --bind "$stack" "$root/stack"
mount --bind "$implementations" "$root/implementations"
mount --bind "$hosts" "$root/etc/hosts"

chroot "$root" "/implementations/$name/run_endpoint" &
child=$!
trap 'kill -TERM "$child" 2>/dev/null || :' TERM
code=0
wait "$child" || code=$?
while [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do
    code=0
    wait "$child" || code=$?
done
exit "$code"
