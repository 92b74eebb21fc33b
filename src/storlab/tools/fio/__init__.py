"""fio's JSON, terse lines, output for people and logs."""
