"""fio's JSON, terse lines and logs."""
