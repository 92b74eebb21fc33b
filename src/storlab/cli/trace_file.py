"""``storlab trace --out``: what was seen, in a file whose ending says how."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl

from storlab.blockio.blkalgn_write import blkalgn_json
from storlab.blockio.histograms import by_disk
from storlab.blockio.text import tables
from storlab.records.files import write_whole


def write_trace(path: Path, requests: pl.DataFrame, events: pl.DataFrame | None) -> None:
    """Write it in one step. ``events``: single requests, where they were asked for.

    ``.json`` is blkalgn's dialect with keys in bytes, ``.txt`` the tables: both are of the counts. ``.parquet`` and
    ``.csv`` have the events where there are any, else the counts.
    """
    frame = requests if events is None else events
    match path.suffix:
        case ".json":
            data = blkalgn_json(by_disk(requests))
        case ".txt":
            data = tables(requests).encode()
        case ".csv":
            data = frame.write_csv().encode()
        case _:
            buffer = io.BytesIO()
            frame.write_parquet(buffer)
            data = buffer.getvalue()
    write_whole(path, data)
