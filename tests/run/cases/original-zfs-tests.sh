cd "$TMPDIR"
env -i PATH="$PATH" HOME="$HOME" USER="$USER" DISKS="$DISKS" \
    /usr/share/zfs/zfs-tests.sh -v -r sanity -T exec > console
echo $? > status
cp "$(sed -n 's/^Log directory:[[:space:]]*//p' console)/results" .
tar cf - console status results
