"""``storlab trace --out``: what was seen, in a file whose ending says how."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from storlab.blockio.blkalgn_write import blkalgn_json
from storlab.blockio.histograms import by_disk
from storlab.blockio.text import tables
from storlab.errors import UserError
from storlab.records.files import write_whole


def write_trace(path: Path, requests: pl.DataFrame) -> None:
    """Write it in one step: ``.json`` is blkalgn's dialect with keys in bytes, ``.txt`` the tables.

    Single requests are for ``trace_events``. Raises ``UserError``.
    """
    match path.suffix:
        case ".json":
            data = blkalgn_json(by_disk(requests))
        case ".txt":
            data = tables(requests).encode()
        case ".csv":
            data = requests.write_csv().encode()
        case _:
            buffer = io.BytesIO()
            requests.write_parquet(buffer)
            data = buffer.getvalue()
    try:
        write_whole(path.resolve(), data)  # where a link leads, so that it stays one
    except OSError as error:
        raise UserError(f"--out {path} can't be written: {error.strerror}") from None
