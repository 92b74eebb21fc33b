"""What a file is that no importer reads, by how it begins: packed, or in another encoding than UTF-8, or empty."""

from __future__ import annotations

_UNPACK = "unpack it first"
_UTF_16 = "is text in UTF-16, not UTF-8: convert it first (iconv -f {} -t UTF-8)"
_LOOKED_AT = 64  # bytes by which UTF-16 is known that doesn't say so
_BEGINNINGS = {
    b"\x1f\x8b": f"is packed by gzip: {_UNPACK} (gunzip)",
    b"\x28\xb5\x2f\xfd": f"is packed by Zstandard: {_UNPACK} (unzstd)",
    b"\xfd7zXZ\x00": f"is packed by xz: {_UNPACK} (unxz)",
    b"BZh": f"is packed by bzip2: {_UNPACK} (bunzip2)",
    b"PK\x03\x04": f"is a ZIP archive, or a workbook of Excel or Calc: {_UNPACK} (unzip), or save it as CSV",
    b"\xff\xfe": _UTF_16.format("UTF-16"),
    b"\xfe\xff": _UTF_16.format("UTF-16"),
    b"\x7fELF": "is a program, not the output of one",
    b"%PDF-": "is a PDF: the text or table that it was made of is needed",
    b"PAR1": "is a table in Parquet: save it as CSV first",
    b"SQLite format 3\x00": "is a database of SQLite: save the table as CSV first",
}


def foreign(text: bytes) -> str | None:
    """What the contents of a file are instead of text, and what to do: the end of a sentence about it."""
    if not text:
        return "is empty"
    halves = {"UTF-16LE": text[1:_LOOKED_AT:2], "UTF-16BE": text[:_LOOKED_AT:2]}
    zeros = [name for name, half in halves.items() if half and not any(half)]
    if len(zeros) == 1 and len(text) > 8:  # both halves: nothing but zeros
        return _UTF_16.format(zeros[0])
    return next((said for beginning, said in _BEGINNINGS.items() if text.startswith(beginning)), None)
