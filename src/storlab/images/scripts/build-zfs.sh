# Compiles ZFS's modules in a throw-away Debian that has a kernel's headers and zfs-dkms's source unpacked.
# $1: the kernel's release, $2: ABI name of the headers (the release without its flavour).
# Leaves spl.ko and zfs.ko in /tmp/storlab.
set -eu
objects=/usr/src/linux-headers-$1
source=/usr/src/linux-headers-$2-common

ln -sf gcc-12 /usr/bin/gcc
ln -sf gcc-12 /usr/bin/cc

# The headers have a stub of vmlinux. With it, every module gets BTF, which needs pahole; without pahole, configure
# fails with "kernel does not include the required loadable module support".
rm -f "$objects/vmlinux"

# Debug information would double the time and be stripped again: it doesn't change the code.
export KCFLAGS=-g0

cd /usr/src/zfs-*/
echo "storlab: configuring"
./configure --disable-dependency-tracking --prefix=/usr --with-config=kernel \
    --with-linux="$source" --with-linux-obj="$objects"
echo "storlab: compiling"
make -j"$(nproc)"

mkdir -p /tmp/storlab
for module in spl zfs; do
    strip --strip-debug -o "/tmp/storlab/$module.ko" "module/$module.ko"
done
