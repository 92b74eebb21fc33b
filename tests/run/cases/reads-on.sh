dd if=/dev/zero of=$target/$node bs=4k count=1 conv=fsync status=none; echo "@begun@" > /dev/console
i=0; while [ $trial = 1 ] && [ $i -lt 3000 ]; do
    i=$((i + 1)); dd if=/dev/zero of=$target/$node bs=4k count=1 conv=notrunc,fsync status=none || exit 1
done
