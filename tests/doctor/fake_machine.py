"""A machine made of dictionaries, for checks to look at."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from storlab.doctor.machine import Ended, Machine


class FakeMachine(Machine):
    """``files``: path → text. ``programs``: name → what it prints; one that ends with "!" fails."""

    release = "6.1.0-1-amd64"
    capabilities = 0

    def __init__(
        self,
        files: Mapping[str, str] | None = None,
        programs: Mapping[str, str] | None = None,
        *,
        options: Mapping[str, str] | None = None,
        root: bool = True,
        syscall: int = -1,
        cpus: int = 2,
        free: int = 0,
        architecture: str = "x86_64",
    ) -> None:
        self.files = dict(files or {})
        self.programs = dict(programs or {})
        self.kernel_options = dict(options or {})
        self.ran: list[list[str]] = []
        self._root, self._syscall, self._free = root, syscall, free
        self.cpus, self.architecture = cpus, architecture

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def exists(self, path: str) -> bool:
        return any(file == path or file.startswith(f"{path}/") for file in self.files)

    def glob(self, folder: str, pattern: str) -> list[str]:
        depth = f"{folder}/{pattern}".count("/")
        paths = {"/".join(file.split("/")[: depth + 1]) for file in self.files}
        return sorted(path for path in paths if path.count("/") == depth and fnmatch(path, f"{folder}/{pattern}"))

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

    def run(self, argv: Sequence[str]) -> Ended:
        self.ran.append(list(argv))
        text = self.programs.get(argv[0])
        if text is None:
            return Ended(127, f"{argv[0]} is not installed")
        return Ended(1 if text.endswith("!") else 0, text.removesuffix("!"))

    def syscall(self, number: int, *arguments: object) -> int:
        return self._syscall

    def free(self, folder: str) -> int:
        return self._free

    @property
    def is_root(self) -> bool:
        return self._root
