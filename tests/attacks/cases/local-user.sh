cd "$1" || exit
for found in "$3" .storlab-* storlab-*; do
    for attempt in "mv -T $found $found-gone" "rmdir $found" "unlink $found" "ls $found" "touch $found/x"; do
        $attempt >/dev/null 2>&1 && echo "$attempt"
    done
    ln -s "$2" "$found" 2>/dev/null
done
