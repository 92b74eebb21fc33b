#!/bin/bash
failed=0
for test; do
    mkdir -p "results/${test%/*}"
    out=results/$test.out.bad
    rm -f "results/$test.notrun"
    seqres=results/$test bash "tests/$test" > "$out" 2>&1
    if [ -e "results/$test.notrun" ]; then
        echo "$test       [not run] $(cat "results/$test.notrun")"
    elif cmp -s "$out" "tests/$test.out"; then
        rm "$out"
        echo "$test        1s"
    else
        echo "$test       - output mismatch (see $PWD/$out)"
        failed=1
        names="$names $test"
    fi
    echo "Ran: $test"
done
[ -z "$names" ] || echo "Failures:$names"
exit "$failed"
