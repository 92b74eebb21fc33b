# Gathers in tmp/storlab/tree what a Debian with perf has beyond the packages that tmp/storlab/base names. $1: its folder.
set -eu
cd "$1"
export LC_ALL=C
mkdir tmp/storlab/tree
chroot . dpkg-query --show --showformat '${Package}\n' | sort -u >tmp/storlab/all
sort -u tmp/storlab/base >tmp/storlab/sorted
: >tmp/storlab/packages
for package in $(comm -23 tmp/storlab/all tmp/storlab/sorted); do
    chroot . dpkg-query --show "$package" >>tmp/storlab/packages
    chroot . dpkg-query --listfiles "$package" | while read -r file; do
        # Through /lib, which is a link to /usr/lib: a layer must not have a folder in its place.
        case $file in /bin/* | /lib/* | /lib64/* | /sbin/*) file=/usr$file ;; esac
        if [ -f ".$file" ] || [ -L ".$file" ]; then
            cp --archive --parents ".$file" tmp/storlab/tree
        fi
    done
done
for folder in usr/local/bin usr/sbin usr/bin; do
    [ ! -d "tmp/storlab/tree/$folder" ] ||
        find "tmp/storlab/tree/$folder" -mindepth 1 -maxdepth 1 ! -type d -printf '%f\n'
done | sort -u >tmp/storlab/programs
