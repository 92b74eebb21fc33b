"""Write disk.txt and memory.txt, as run-fio-test.sh of virtiofs-tests does. `python virtiofs_files.py`

By real runs of fio, small and short: three jobs, three loops each, on a folder here and on one in memory.
"""

import os
import platform
import subprocess
import tempfile
from pathlib import Path

JOBS = {
    "randread-psync": "[randread-psync]\nioengine=psync\nrw=randread\n",
    "randwrite-psync": "[randwrite-psync]\nioengine=psync\nrw=randwrite\n",
    "seqread-mmap": "[seqread-mmap]\nioengine=mmap\nrw=read\n",
}
LOOPS = 3
OPTIONS = {"runtime": "2", "iodepth": "16", "size": "16M", "direct": "0", "blocksize": "4K"}
MEMORY = Path("/dev/shm")
PLACES = {"disk": Path.cwd(), "memory": MEMORY if os.access(MEMORY, os.W_OK) else Path.cwd()}


def head(name: str, folder: Path) -> str:
    """The lines with which such a file begins."""
    told = " ".join(f"{option.upper()}={value}" for option, value in OPTIONS.items())
    return (
        f"TESTDIR={folder}\nJOB_FILES={' '.join(f'fio-jobs/{job}.job' for job in JOBS)}\nTEST_NAME={name}\n"
        f"SYSTEMINFO={platform.system()} {platform.release()}\nMOUNTPOINT={folder}\nLOOPS={LOOPS} {told}\n\n"
    )


def ran(folder: Path, job: Path) -> str:
    """What one fio prints, below the line that says how it was called."""
    options = [f"--{option}={value}" for option, value in OPTIONS.items()]
    command = ["fio", f"--directory={folder}", *options, "--append-terse", f"fio-jobs/{job.name}"]
    ended = subprocess.run(command, cwd=job.parent.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"Running: {' '.join(command)}\n{ended.stdout}"


for name, place in PLACES.items():
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        jobs = Path(scratch, "fio-jobs")
        jobs.mkdir()
        text = head(name, Path(scratch))
        for job, contents in JOBS.items():
            path = jobs / f"{job}.job"
            path.write_text(contents)
            text += "".join(ran(Path(scratch), path) for _ in range(LOOPS))
    Path(f"{name}.txt").write_text(text)
