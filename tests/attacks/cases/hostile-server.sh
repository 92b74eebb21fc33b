#!/bin/sh
# A server that somebody has taken over, when it starts. It prints what it could do.
try() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then echo "it could $what"; fi
}
try "write its own" touch "$HOME/own"
try "read root's files" cat /etc/shadow
try "write outside" touch @outside@
try "write to the kernel" sh -c 'echo 3 >/proc/sys/vm/drop_caches'
try "see others" test -e /proc/@pid@/status
try "signal others" kill -0 @pid@
try "mount" mount -t tmpfs none "$HOME"
try "remount" mount -o remount,bind,rw /
try "make a device" mknod "$HOME/disk" b 1 0
try "enter namespaces" unshare --mount true
try "name the machine" hostname taken-over
try "trace" strace -o /dev/null true
echo "it tried"
exit 3
