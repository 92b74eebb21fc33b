"""An agent that lies: it speaks the protocol over its standard streams, and answers as its one argument says.

The argument is JSON: for an operation, the events that it answers, each with its ``payload`` as text or as a number of
bytes; ``"endless": true`` repeats the last of them for ever, ``"raw"`` is sent as it is. A command's name may stand for
``run``. What steps bring is the text, or the number of bytes, of ``"do NAME"``. Everything else is answered as an
honest agent would.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from typing import Any

PREFACE = b"storlab-agent/1\n"
STARTED = {"event": "started", "pid": 4711, "cgroup": None}
EXIT = {
    "event": "exit", "code": 0, "signal": None, "timed_out": False, "stopped_by": None, "late_ns": None, "start_ns": 1,
    "elapsed_ns": 1, "user_ns": 0, "system_ns": 0, "max_rss_bytes": 1, "survivors": 0, "dropped": 0,
}  # fmt: skip
OUTPUT = {"event": "stdout", "monotonic_ns": 1}
HONEST: dict[str, list[dict[str, Any]]] = {
    "run": [STARTED, EXIT],
    "read": [{"event": "done", "size": 0}],
    "sample": [{"event": "done", "ticks": 0}],
}


def frame(event: dict[str, Any]) -> bytes:
    """One event on the stream; ``header`` is sent as it is."""
    payload = event.get("payload", "")
    body = bytes(payload) if isinstance(payload, int) else payload.encode()
    text = event.get("header")
    keys = {key: value for key, value in event.items() if key != "payload"}
    header = text.encode() if text is not None else json.dumps(keys).encode()
    return struct.pack(">IH", 2 + len(header) + len(body), len(header)) + header + body


def send(data: bytes) -> None:
    """All of it; ends where nobody listens any more."""
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        sys.exit()


def receive() -> dict[str, Any]:
    """The next request; ends with the stream."""
    length, header = struct.unpack(">IH", exactly(6))
    body = exactly(length - 2)
    request: dict[str, Any] = json.loads(body[:header])
    return request


def exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit()
        data += more
    return data


def answers(lies: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """What it answers to a request."""
    op = request["op"]
    program = request["argv"][0].rpartition("/")[2] if op == "run" else ""
    if op == "steps" and op not in lies:
        return [carried_out(lies, request["steps"])]
    if op == "clock" and op not in lies:
        return [{"event": "clock", "monotonic_ns": time.monotonic_ns(), "realtime_ns": time.time_ns()}]
    if op == "hello" and op not in lies:
        return [HELLO]
    found: list[dict[str, Any]] = lies.get(program) or lies.get(op) or HONEST.get(op, [{"event": "done"}])
    return found


def carried_out(lies: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Every step went well, and brought what the lies have for ``"do NAME"``, or nothing."""
    results, payload = [], ""
    for step in steps:
        own = lies.get(f"do {step['do']}")
        brought = own if isinstance(own, str) else "x" * (own or 0)
        results.append({"size": len(brought)} if step["do"] in BRING else {})
        payload += brought
    return {"event": "steps", "results": results, "payload": payload}


BRING = ("read", "readlink", "names", "files")
HELLO = {"event": "hello", "protocol": 1, "version": "1", "pid": os.getpid(), "boot_id": "b", "hostname": "h"}


def main() -> None:
    lies = json.loads(sys.argv[1])
    exactly(len(PREFACE))
    send(PREFACE + frame(lies.get("greeting", {"id": 0, **HELLO})))
    while True:
        request = receive()
        events = [{"id": request["id"], **event} for event in answers(lies, request)]
        for event in events:
            send(event["raw"].encode("latin-1") if "raw" in event else frame(event))
        while events and events[-1].get("endless"):
            send(frame(events[-1]))


if __name__ == "__main__":
    main()
