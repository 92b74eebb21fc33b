"""One process that draws the charts of many: starting vl-convert's JavaScript engine takes half a second of CPU.

Processes that were forked can't inherit the engine, which is threads.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

_DRAWN = ("vegalite_to_svg", "svg_to_png")


def draw_elsewhere() -> None:
    """From now on, in this process and those forked from it, charts are drawn by another one, which ends with this one.

    Where it doesn't answer, as in a place from which its socket can't be seen, each draws for itself.
    """
    import vl_convert

    address = f"/tmp/storlab-draws-{os.getpid()}"  # tempfile would remember this process's TMPDIR for all of them
    Path(address).unlink(missing_ok=True)
    os.posix_spawn(sys.executable, [sys.executable, __file__, address], os.environ, setsid=True)
    for name in _DRAWN:
        vars(vl_convert)[name] = partial(_ask, address, name, getattr(vl_convert, name))


def _ask(address: str, name: str, here: Any, drawing: Any, **options: Any) -> Any:
    try:
        with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answer:
            connection.connect(address)
            connection.sendall(json.dumps([name, drawing, options]).encode())
            connection.shutdown(socket.SHUT_WR)
            kind, drawn = answer.readline(), answer.read()
    except OSError:
        kind = drawn = b""
    if kind == b"str\n":
        return drawn.decode()
    return drawn if kind == b"bytes\n" else here(drawing, **options)


def _serve(address: str) -> None:
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        Path(address).chmod(0o666)  # some tests' programs are those of other users
        listening.listen(64)
        while os.getppid() == parent:
            if select.select([listening], [], [], 1.0)[0]:
                connection, _ = listening.accept()
                connection.settimeout(10.0)
                # Who asked may have been killed or stopped by its test; what can't be drawn fails there as well.
                with connection, suppress(OSError, ValueError), connection.makefile("rb") as request:
                    connection.sendall(_drawn(*json.loads(request.read())))
    Path(address).unlink()


def _drawn(name: str, drawing: Any, options: dict[str, Any]) -> bytes:
    """Of which kind it is, on a line of its own, and what was drawn."""
    import vl_convert

    drawn: str | bytes = getattr(vl_convert, name)(drawing, **options)
    return b"str\n" + drawn.encode() if isinstance(drawn, str) else b"bytes\n" + drawn


if __name__ == "__main__":
    _serve(sys.argv[1])
