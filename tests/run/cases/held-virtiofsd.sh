#!/bin/sh
[ "$1" = --version ] || echo $$ > @group@/cgroup.procs
exec @words@ "$@"
