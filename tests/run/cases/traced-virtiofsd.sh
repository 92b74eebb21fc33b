#!/bin/sh
# A virtiofsd whose reads and writes are noted, also those of its threads; its sandbox is namespaces of its own.
case "$*" in *--version) exec @words@ "$@";; esac
exec strace -f -qq -e trace=preadv,preadv2,pwritev,pwritev2 -o @log@ @words@ "$@"
