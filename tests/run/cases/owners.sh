set -ex
cd $target
chmod 755 .
as="setpriv --reuid=1234 --regid=5678 --clear-groups"
echo first > own
echo secret > roots
chmod 600 roots
chown 1234:5678 own
chmod 4755 own
test "$(stat -c %u:%g:%a own)" = 1234:5678:4755
$as sh -c "echo second >> own"
test "$(tail -n 1 own)" = second
if $as cat roots; then exit 1; fi
ln own linked
mkfifo pipe
if mknod disk b 1 0; then exit 1; fi
