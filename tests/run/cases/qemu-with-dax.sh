#!/bin/sh
# The installed QEMU, as one that has a DAX window: it knows the property, notes the command lines that ask for one, and goes on without.
case "$*" in
    *vhost-user-fs-pci,help*) echo "  cache-size=<size>      -  (default: 0)" ;;
    *cache-size*) echo "$*" >> @log@ ;;
esac
for word; do
    shift
    set -- "$@" "$(printf '%s' "$word" | sed 's/,"cache-size":[0-9]*//')"
done
exec qemu-system-x86_64 "$@"
