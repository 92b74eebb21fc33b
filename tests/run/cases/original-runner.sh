mkdir -p "@own@"
cp -a /usr/local/share/storlab-suite/own/. "@own@"
cd "$TMPDIR"
python3 /usr/share/zfs/test-runner/bin/test-runner.py -c "@own@/own.run" -i "@own@" -o "$TMPDIR/original" > console
echo $? > status
tar cf - --exclude current console status original
