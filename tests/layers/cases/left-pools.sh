modprobe loop dm-mod
set -e
cd "$1"
truncate --size 128M loop file mapped mixed
losetup --find --show loop > /dev/null
zpool create onloop "$(losetup --noheadings --output NAME --associated loop)"
zpool create onfile "$PWD/file"
loop=$(losetup --find --show mapped)
echo "0 16384 linear $loop 0" | dmsetup create left-by-test
dmsetup mknodes
mkfs.ext4 -q /dev/mapper/left-by-test
mkdir --parents mnt
mount /dev/mapper/left-by-test mnt
