#!/bin/bash
# Prepares a guest, or this machine if HERE is given, for the ZFS Test Suite, once, and prints the environment of its
# scripts, ended by zeros.
# Given: DISKS, or FILES and FILESIZE; FILEDIR, STF_SUITE, RUNNER. KEEP, TESTFAIL_CALLBACKS, HOLD if so wished. Run by
# root.
set -e

# A guest is changed as it suits the suite. This machine is taken as it is: its users, who may use sudo, its settings.
if [ -z "${HERE:-}" ]; then
    id "$RUNNER" > /dev/null 2>&1 || useradd --create-home --shell /bin/bash "$RUNNER"
    printf '%s ALL=(ALL) NOPASSWD: ALL\n' "$RUNNER" > /etc/sudoers.d/storlab-suite
    chmod 0440 /etc/sudoers.d/storlab-suite
    # ZFS's own log, from the start.
    echo 1 > /sys/module/zfs/parameters/zfs_dbgmsg_enable
    echo 0 > /proc/spl/kstat/zfs/dbgmsg
    [ -z "${STACK_TRACER:-}" ] || echo 1 > /proc/sys/kernel/stack_tracer_enabled
fi
mkdir -p "$FILEDIR/test_results"
chmod 0777 "$FILEDIR/test_results"

# The suite's scripts may use the programs that commands.cfg names, and no others.
. "$STF_SUITE/include/commands.cfg"
STF_PATH=$(mktemp -d "$FILEDIR/constrained_path.XXXXXX")
chmod 755 "$STF_PATH"
found=()
missing=()
look() { # DIRECTORIES NAMES
    local name directory
    for name in $2; do
        for directory in $1; do
            if [ -e "$directory/$name" ] && [ ! -d "$directory/$name" ]; then
                found+=("$directory/$name")
                continue 2
            fi
        done
        missing+=("$name")
    done
}
system="/usr/local/bin /usr/local/sbin /usr/bin /usr/sbin /bin /sbin /usr/lib/zfs-linux"
look "$system" "$ZFS_FILES"
look "$STF_SUITE/bin" "$ZFSTEST_FILES"
look "$system" "$SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX"
ln -sf "${found[@]}" "$STF_PATH/"
ln -sf /sbin/fsck.ext4 "$STF_PATH/fsck"
ln -sf /sbin/mkfs.ext4 "$STF_PATH/newfs"
ln -sf "$STF_PATH/gzip" "$STF_PATH/compress"
ln -sf "$STF_PATH/gunzip" "$STF_PATH/uncompress"
# The suite's users get the group of the link that leads to zfs: that of who runs the suite, and not root's.
chown --recursive --no-dereference "$RUNNER:" "$STF_PATH" "$FILEDIR/test_results"

# What is there already is none of the suite's; where nothing is, it wants a name all the same.
keep=$(zpool list -Ho name 2> /dev/null | tr -s '[:space:]' ' ')
[ -z "${KEEP:-}" ] || keep=$(tr -s '[:space:]' ' ' <<< "$KEEP")
export KEEP=${keep:-rpool}
export __ZFS_POOL_EXCLUDE=$KEEP
for file in ${FILES:-}; do
    [ "${file#/}" != "$file" ] || file=$FILEDIR/$file
    mkdir -p "${file%/*}"
    truncate --size "$FILESIZE" "$file"
    chown "$RUNNER:" "$file"
    DISKS=${DISKS:+$DISKS }$file
done
export DISKS FILEDIR STF_SUITE STF_PATH
export STF_TOOLS=${STF_SUITE%/*}/test-runner
export TMPDIR=$FILEDIR
callbacks=$STF_SUITE/callbacks
export TESTFAIL_CALLBACKS=${TESTFAIL_CALLBACKS:-$callbacks/zfs_dbgmsg.ksh:$callbacks/zfs_dmesg.ksh:$callbacks/zfs_mmp.ksh}
if [ -n "${HOLD:-}" ]; then
    # The suite's tests clean up once their last callback returns: this one waits until somebody has looked.
    printf '#!/bin/sh\necho "$PPID" > %s\nread -r line < %s\n' "$HOLD/held" "$HOLD/released" > "$HOLD/callback"
    chmod 755 "$HOLD/callback"
    TESTFAIL_CALLBACKS=$TESTFAIL_CALLBACKS:$HOLD/callback
fi
# A tree that is laid over a guest has these where it is, and looks for them where it would be installed.
zedlets=${STF_SUITE%/*}/zed.d
[ ! -d "$zedlets" ] || export ZEDLET_ETC_DIR=$zedlets ZEDLET_LIBEXEC_DIR=$zedlets
[ ! -d "${STF_SUITE%/*}/zpool.d" ] || export ZPOOL_SCRIPTS_PATH=${STF_SUITE%/*}/zpool.d
export BIN_DIR=/usr/bin SBIN_DIR=/sbin LIBEXEC_DIR=/usr/lib/zfs-linux
export ZTS_DIR=${STF_SUITE%/*} SCRIPT_DIR=${STF_SUITE%/*} RUNFILE_DIR=${STF_SUITE%/*}/runfiles
export ZDB=/sbin/zdb ZFS=/sbin/zfs ZPOOL=/sbin/zpool ZTEST=/sbin/ztest ZFS_SH=${STF_SUITE%/*}/zfs.sh
. "$STF_SUITE/include/default.cfg" >&2
HOME=$(getent passwd "$RUNNER" | cut -d: -f6)
export HOME SHELL=/bin/bash
export STORLAB_MISSING=${missing[*]} STORLAB_UID=$(id -u "$RUNNER")
unset HERE HOLD RUNNER STACK_TRACER FILES FILESIZE OLDPWD PWD SHLVL _
env -0
