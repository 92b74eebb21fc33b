"""``python -m storlab.remote.there``: what the other machine calls, by a word and its arguments.

Each answers with a line of JSON: what was asked for, or ``{"refused": SENTENCE}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from storlab.remote.there.follow import main_follow
from storlab.remote.there.job import Job, Refused, jobs
from storlab.remote.there.supervise import detach

_SIGNALS = {"INT": signal.SIGINT, "TERM": signal.SIGTERM}


def start(source: BinaryIO) -> dict[str, Any]:
    """Store what comes and start it: a line of JSON, then files, then ``{"go": true}``; before that, nothing is."""
    asked = json.loads(source.readline())
    job = Job(asked["job"])
    if continued := asked.get("work"):
        asked["work"] = continued = Job(continued).asked().get("work") or continued  # the first of several
        before = Job(continued)
        before.asked()
        for each in jobs():
            if each.work == before.path("work") and each.alive:
                return {"busy": each.name}
    os.umask(0o077)
    job.folder.mkdir(parents=True)
    lock = job.lock()
    assert lock is not None
    work = before.path("work") if continued else job.path("work")
    work.mkdir(exist_ok=True)
    while not (header := json.loads(source.readline() or "{}")).get("go"):
        if "file" not in header:
            shutil.rmtree(job.folder)
            raise Refused("the connection ended before everything was there; nothing was started")
        path = _store(work, str(header["file"]), int(header["size"]), source)
        path.chmod(0o700 if header.get("executable") else 0o600)
    since = datetime.now().astimezone().isoformat(" ", "seconds")
    job.path("job.json").write_text(json.dumps({**asked, "since": since}))
    detach(job, lock)
    return {"job": job.name}


def _store(work: Path, name: str, size: int, source: BinaryIO) -> Path:
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source.read(size))
    return path


def send_signal(job: Job, name: str) -> dict[str, Any]:
    sent = job.alive
    if sent:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(job.path("pid").read_text()), _SIGNALS[name])
    return {"sent": sent}


def answer(job: Job, text: str) -> dict[str, Any]:
    with job.path("answers").open("r+b", buffering=0) as file:
        file.write(f"{text}\n".encode())
    return {"sent": True}


def main(words: list[str]) -> int:
    try:
        match words:
            case ["follow", name]:
                return main_follow(name)
            case ["start"]:
                said: object = start(sys.stdin.buffer)
            case ["jobs"]:
                said = [job.describe() for job in jobs()]
            case ["signal", name, ("INT" | "TERM") as which]:
                said = send_signal(Job(name), which)
            case ["answer", name, text]:
                said = answer(Job(name), text)
            case ["remove", name]:
                Job(name).remove()
                said = {"removed": name}
            case _:
                raise Refused("this is called by Storlab on another machine: see docs/reference/remote.md")
    except Refused as error:
        said = {"refused": str(error)}
    except OSError as error:
        said = {"refused": f"{error.filename or 'the system refused something'}: {error.strerror}"}
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
