"""Another user tries to lock this machine while root has it, and afterwards."""

import os
import sys

from storlab.base.errors import UserError
from storlab.run.machine import machine_for


def as_another(what: str, *, shared: bool = False) -> None:
    sys.stdout.flush()
    if os.fork():
        os.wait()
        return
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        if what == "flock":
            os.open("/run/storlab/machine", os.O_RDONLY)
        with machine_for("theirs", print, shared=shared):
            print(f"{what}: had it")
    except OSError as error:
        print(f"{what}: {error.strerror}")
    except UserError as error:
        print(f"{what}: {str(error).partition('. ')[0]}")
    sys.stdout.flush()
    os._exit(0)


os.environ["XDG_RUNTIME_DIR"] = "/run/user-of-the-test"
os.mkdir("/run/user-of-the-test", 0o777)  # noqa: PTH102
os.chmod("/run/user-of-the-test", 0o777)  # noqa: PTH101
os.mkdir("/run/storlab", 0o755)  # noqa: PTH102
os.close(os.open("/run/storlab/machine", os.O_CREAT, 0o644))  # as umask and others have left it
with machine_for("mine", print):
    as_another("flock")
    as_another("shared", shared=True)
    as_another("alone")
as_another("after")
