# The last steps on a guest's root file system. $1: its folder. Runs outside of it, as its root.
set -eu
cd "$1"

# Servers' data: studies make their own, in folders of their own. Logs, caches, and what differs from build to build.
rm -rf etc/postgresql/* var/lib/postgresql/* var/lib/mysql/* var/lib/apt/lists/* var/cache/apt/* var/cache/debconf/*-old \
    var/cache/ldconfig/aux-cache usr/lib/udev/hwdb.bin etc/ssl/private/* etc/ssl/certs/ssl-cert-snakeoil.pem \
    etc/hostid etc/nvme/hostid etc/nvme/hostnqn var/lib/systemd/random-seed
find var/log -type f -delete
find . -xdev -name __pycache__ -prune -exec rm -rf {} +
# Identities: a guest's own is made when it is needed, so that no two guests share one.
: >etc/machine-id
: >etc/resolv.conf
echo GenerateName=yes >etc/iscsi/initiatorname.iscsi
echo guest >etc/hostname
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >etc/hosts

# PostgreSQL's servers are not on Debian's PATH.
for program in usr/lib/postgresql/*/bin/*; do
    ln -sf "/$program" "usr/local/bin/${program##*/}"
done

# Another program would bring all of binutils for this.
ln -s /bin/busybox usr/local/bin/strings

# ZFS's test suite wants an ordinary user who may do everything.
chroot . useradd --create-home --shell /bin/bash storlab
echo 'storlab ALL=(ALL) NOPASSWD: ALL' >etc/sudoers.d/storlab
chmod 0440 etc/sudoers.d/storlab
# shadow(5) counts days since the last change of a password: that is today.
sed -i 's/^\([^:]*:[^:]*\):[0-9]*:/\1:19518:/' etc/shadow
rm -f etc/*- var/backups/*

for package in tmp/storlab/*.deb; do
    [ -e "$package" ] || continue
    # dpkg-deb --extract would put a folder in the place of the link /lib.
    dpkg-deb --fsys-tarfile "$package" | tar --extract --keep-directory-symlink \
        --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*'
    dpkg-deb --show "$package" >>tmp/storlab/packages
done
chroot . dpkg-query --show >>tmp/storlab/packages
for folder in usr/local/sbin usr/local/bin usr/sbin usr/bin; do
    find "$folder" -mindepth 1 -maxdepth 1 ! -type d -perm /111 -printf '%f\n'
done | sort -u >tmp/storlab/programs
