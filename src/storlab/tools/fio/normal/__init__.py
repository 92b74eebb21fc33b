"""fio's output for people (``--output-format=normal``)."""
