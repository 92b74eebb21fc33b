"""Layer ``virtiofs``: a virtual machine's mount of what ``virtiofsd`` serves.

See Documentation/filesystems/virtiofs.rst in the kernel's sources, hw/virtio/vhost-user-fs.c in QEMU's.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from storlab.base.allowed import NotAllowed, allowed, option_and_value
from storlab.base.errors import Unsupported
from storlab.base.reach import Program, options_of
from storlab.base.text import one_line
from storlab.base.units import Size, power_of_two
from storlab.images.unpacked import Implementation, find_virtiofsd
from storlab.layers.base import Crossing, Layer, LayerContext
from storlab.layers.fs.mkfs import OfVirtiofs
from storlab.layers.fs.mount import mount_attached, mount_facts, unmount
from storlab.layers.resources import Dir, Share
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.layers.share.client import CLIENTS
from storlab.nodes.accounts import is_root
from storlab.nodes.agent import steps
from storlab.nodes.answers import load_modules
from storlab.nodes.demands import Demands, Devices
from storlab.nodes.needs import Needs, numactl_programs
from storlab.nodes.node import Confinement, Node
from storlab.nodes.privileges import TOOLS, confinement

# Layer ``virtiofsd``: the underlying directory, served to one virtual machine by a daemon on the machine that runs
# it.
#
# The one in Rust (https://gitlab.com/virtio-fs/virtiofsd) and the one in C that QEMU had up to 7.2 do the same by
# other options; what either takes by default is written out here, so that both get the same. Their threads are an
# exception: how many each has by itself is worth knowing.

Caching = Literal["auto", "always", "never", "metadata"]

PROGRAMS: Mapping[Implementation, str] = {"rust": "virtiofsd", "c": "virtiofsd of QEMU 7"}
"""What each is called where it is missing."""

_OF_RUST: Mapping[str, Any] = {"inode_file_handles": "never", "allow_mmap": False}
"""What only the one in Rust can do, and the values that do nothing."""
_ARENAS = ("env", "MALLOC_ARENA_MAX=64")
"""With more than eight threads that allocate, glibc 2.36 asks for the number of CPUs, by a call (sched_getaffinity)
that the C daemon does not allow itself: its seccomp filter kills it. A limit that is set spares glibc the question.
"""
_MODCAPS = "modcaps="
_VERSION = re.compile(r"virtiofsd (?P<c>version )?(?P<version>\d+(?:\.\d+)+)")


class VirtiofsdLayer(ServerLayer[Dir, Share]):
    """A daemon of its own for each virtual machine; several of them may serve one directory."""

    layer: Literal["virtiofsd"] = "virtiofsd"
    cache: Caching = Field(
        "auto",
        description="What the guest may cache. `auto`: names and attributes for a second, data while a file is open. "
        "`always`: everything, unchecked. `never` (or `none`): nothing. `metadata`: all but data.",
    )
    implementation: Implementation = Field("rust", description="`rust`, or `c`: the daemon of QEMU up to 7.2.")
    path: Program | None = Field(None, pattern="^/[^\\x00]+$", max_length=4095, description="A virtiofsd of your own.")
    thread_pool: Annotated[int, Field(ge=0, le=1024)] | Literal["default"] = Field(
        "default", description="Threads that serve requests; 0 serves them one by one. `default`: as the daemon has it."
    )
    writeback: bool = Field(False, description="The guest gathers writes in its page cache.")
    xattr: bool = Field(False, description="Extended attributes.")
    posix_acl: bool = Field(False, description="Access control lists; takes `xattr = true`.")
    allow_direct_io: bool = Field(False, description="O_DIRECT in the guest is O_DIRECT on the host, too.")
    allow_mmap: bool = Field(False, description="Shared mappings without a cache (`never`, `metadata`).")
    inode_file_handles: Literal["never", "prefer", "mandatory"] = Field(
        "never", description="Files are found again by file handles, in place of a descriptor kept open for each."
    )
    open_files: int | None = Field(
        None,
        ge=32,
        description="How many files it may have open, one for each that the guest knows; by default a million.",
    )
    readdirplus: bool = Field(True, description="Attributes come with the names of a directory.")
    announce_submounts: bool = Field(True, description="Mounts below the directory are mounts in the guest, too.")
    sandbox: Literal["namespace", "none"] = Field(
        "namespace",
        description="How a daemon locks itself in that Storlab does not [confine](confinement.md#servers): by "
        "namespaces, or not at all, where users may have none. The C daemon has no `none`.",
    )

    options: tuple[Annotated[str, options_of("virtiofsd")], ...] = Field(
        (),
        max_length=32,
        description='Further [options](options.md): `["xattrmap=:map::user.host.:", "modcaps=-chown"]`; in C also '
        '`["flock", "no_posix_lock", "timeout=5"]`.',
    )

    compared: ClassVar = ("*",)
    program: ClassVar = "virtiofsd"
    protocol: ClassVar = "virtiofs"
    serves_one: ClassVar = True
    keeps_data: ClassVar = False
    ends_with_its_client: ClassVar = True
    start_patience: ClassVar = 30.0
    stop_patience: ClassVar = 5.0

    @field_validator("cache", mode="before")
    @classmethod
    def _by_either_name(cls, value: object) -> object:
        return "never" if value == "none" else value

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.posix_acl and not self.xattr:
            raise ValueError("posix_acl = true takes xattr = true: lists are kept in extended attributes")
        if self.allow_mmap and self.cache not in ("never", "metadata"):
            raise ValueError(f'allow_mmap is for cache = "never" or "metadata": {self.cache!r} maps files anyway')
        for number, option in enumerate(self.options):
            wrong = allowed("virtiofsd", self.implementation).problem(*option_and_value(option))
            if wrong is not None:
                raise NotAllowed(wrong, "options", number)
        if self.implementation == "c":
            self._check_c()
        return self

    def _check_c(self) -> None:
        for key, nothing in _OF_RUST.items():
            if getattr(self, key) != nothing:
                raise ValueError(f'{key}: the C daemon can\'t do that; leave it out, or write implementation = "rust"')
        if self.cache == "metadata":
            raise ValueError('cache = "metadata": the C daemon has auto, always and none')
        if self.sandbox == "none":
            raise ValueError('sandbox = "none": the C daemon has namespaces alone')

    def label(self) -> str:
        return f"virtiofsd {self.cache}" + (" (C)" if self.implementation == "c" else "")

    def words(self) -> tuple[str, ...] | None:
        return (self.path,) if self.path is not None else find_virtiofsd(self.implementation)

    def needs(self) -> Needs:
        own = (self.path,) if self.path is not None else ()
        missing = (PROGRAMS[self.implementation],) if self.words() is None else ()
        return Needs(programs=(*missing, *numactl_programs(self.pin, self.numa)), paths=own)

    async def reach(self, server: ServerContext) -> Confinement | None:
        """Of root's: it has the shared folder, its own and its program, in namespaces in which chroot(2) is enough.

        An ordinary user's locks itself in, as do the one in C, which writes to /var/run, and one of the user's own.
        """
        if self.implementation == "c" or self.path is not None or not await is_root(server.node):
            return None
        words, privileges = self.words(), TOOLS["virtiofsd"]
        assert words is not None, "checked before"
        if self.inode_file_handles != "never":
            privileges = replace(privileges, capabilities=(*privileges.capabilities, "CAP_DAC_READ_SEARCH"))
        return confinement(
            server.node,
            privileges,
            writable=(*server.folders, server.below.path),
            # The program; if it is unpacked, its loader and the folder of its libraries as well.
            visible=tuple(word for word in words if word.startswith("/")),
            bare=True,
        )

    def command(self, server: ServerContext) -> Sequence[str]:
        words = self.words()
        assert words is not None, "checked before"
        options = self._options_of_c(server.below.path) if self.implementation == "c" else self._options(server)
        limits = [] if self.open_files is None else [f"--rlimit-nofile={self.open_files}"]
        before = _ARENAS if self.implementation == "c" and self.thread_pool != 0 else ()
        pool = [] if self.thread_pool == "default" else [f"--thread-pool-size={self.thread_pool}"]
        return [*before, *words, f"--socket-path={server.socket}", *pool, *limits, *options]

    def _options(self, server: ServerContext) -> list[str]:
        sandbox: str = self.sandbox
        own = [*self.options]
        if server.confinement is not None:  # it has no capability to make nodes of devices, and says that it makes none
            said = [option for option in own if option.startswith(_MODCAPS)]
            given_up = ":".join([*(option.removeprefix(_MODCAPS) for option in said), "-mknod"])
            sandbox, own = "chroot", [*(option for option in own if option not in said), f"{_MODCAPS}{given_up}"]
        switches = {
            "--writeback": self.writeback,
            "--xattr": self.xattr,
            "--posix-acl": self.posix_acl,
            "--allow-direct-io": self.allow_direct_io,
            "--allow-mmap": self.allow_mmap,
            "--no-readdirplus": not self.readdirplus,
            "--announce-submounts": self.announce_submounts,
            "--no-announce-submounts": not self.announce_submounts,
        }
        handles = [f"--inode-file-handles={self.inode_file_handles}"]
        where = [f"--shared-dir={server.below.path}", f"--cache={self.cache}", f"--sandbox={sandbox}"]
        further = (f"--{option}" for option in own)
        return [*further, *where, *handles, *(name for name, wanted in switches.items() if wanted)]

    def _options_of_c(self, path: str) -> list[str]:
        if "," in path or "\\" in path:
            raise Unsupported(f"the C virtiofsd can't serve {path}, whose name has a comma or a backslash")
        switches = {
            "writeback": self.writeback,
            "xattr": self.xattr,
            "posix_acl": self.posix_acl,
            "allow_direct_io": self.allow_direct_io,
            "readdirplus": self.readdirplus,
        }
        options = [f"source={path}", f"cache={'none' if self.cache == 'never' else self.cache}"]
        options += [f"sandbox={self.sandbox}", *(name if on else f"no_{name}" for name, on in switches.items())]
        options += ["announce_submounts"] if self.announce_submounts else []
        return ["-f", "-o", ",".join([*self.options, *options])]

    async def prepare(self, server: ServerContext) -> None:
        program, implementation, version = await self._identify(server.node)
        if implementation != self.implementation:
            raise Unsupported(f'{program} is virtiofsd {version}: write implementation = "{implementation}"')

    async def _identify(self, node: Node) -> tuple[str, Implementation, str]:
        """The program, which one it is, and its version. Raises ``Unsupported``."""
        words = self.words()
        if words is None:
            raise Unsupported(f"there is no {PROGRAMS[self.implementation]} any more")
        key = shlex.join([*words, "--version"])
        if key not in node.known:
            ended = await node.run([*words, "--version"], check=False, timeout=self.start_patience)
            node.known[key] = ended.stdout.decode(errors="replace") or ended.describe()
        said = _VERSION.search(node.known[key])
        if said is None:
            raise Unsupported(f"{words[-1]} does not say that it is a virtiofsd: {one_line(node.known[key])}")
        return words[-1], "rust" if said["c"] is None else "c", said["version"]

    def listens_on_socket(self, server: ServerContext) -> bool:
        return True

    async def answers(self, server: ServerContext) -> bool:
        (socket,) = await server.node.carry_out(steps.look(server.socket), go_on=True)
        return socket.result.kind == "socket"

    async def resource(self, server: ServerContext) -> Share:
        return Share(server.node.name, self.protocol, "", 0, server.below.path, socket=server.socket)

    async def facts(self, resource: Share, context: LayerContext) -> dict[str, Any]:
        program, _, version = await self._identify(context.node)
        keys = set(type(self).model_fields) - set(Layer.model_fields) - {"pin", "numa", "path"}
        options = {key: getattr(self, key) for key in sorted(keys)}
        return {"version": version, "program": program, **options}


_SAYS = re.compile(r"^(virtiofs|virtio_fs|fuse)")
_PATIENCE = 60.0  # s for a mount, in an emulated guest beside others
_DEVICE, _WINDOW = "vhost-user-fs-pci", "cache-size"
_SILENT = 5.0  # s; what is given up for nothing belongs to a trial that has failed


class VirtiofsLayer(Crossing[Share, Dir]):
    """The directory that a virtiofsd of the guest's own serves."""

    layer: Literal["virtiofs"] = "virtiofs"
    queue_size: Annotated[int, power_of_two("length of a queue", 2, 1024)] = Field(
        128, description="Requests in flight, a power of two up to 1024; QEMU's default is 128."
    )
    queues: int = Field(1, ge=1, le=64, description="Request queues.")
    dax: Literal["never", "always", "inode"] = Field(
        "never", description="Whether files are mapped from the host's page cache, through the window of `cache_size`."
    )
    cache_size: Annotated[Size | None, power_of_two("size of a DAX window", 4096, 2**46)] = Field(
        None,
        description="The DAX window, such as `16G`: a power of two. Debian's QEMU has none; name one that has with "
        "`qemu`. A guest with a window is booted each time.",
    )
    options: OfVirtiofs = Field((), description='Further [mount options](options.md): "noatime" or a list.')

    compared: ClassVar = ("queue_size", "queues", "cache_size", "filesystem", "options")
    transport: ClassVar = "hypervisor"
    requests: ClassVar = "fuse"
    undoes: ClassVar = (unmount,)

    @model_validator(mode="after")
    def _with_a_window(self) -> Self:
        if self.dax != "never" and self.cache_size is None:
            raise ValueError(f'dax = "{self.dax}" takes a window to map files in: write cache_size = "16G"')
        return self

    def label(self) -> str:
        return "virtiofs" + (f" dax={self.dax}" if self.dax != "never" else "")

    def check_above(self, below: Layer | None) -> str | None:
        if below is None or getattr(below, "protocol", "") == VirtiofsdLayer.protocol:
            return None
        served = getattr(below, "protocol", "")
        right = f'write {{ layer = "{CLIENTS[served]}" }}' if served in CLIENTS else "put virtiofsd below it"
        return f"it mounts what virtiofsd serves, and layer {below.layer} is no virtiofsd: {right}"

    def needs(self) -> Needs:
        window = () if self.cache_size is None else (f"{_DEVICE}.{_WINDOW}",)
        return Needs(filesystems=("virtiofs",), properties=window, root="mounts")

    def demands(self, below: Share, slot: str) -> Demands:
        chardev = f"{slot}-socket"
        queues = {"queue-size": self.queue_size, "num-request-queues": self.queues}
        window = {} if self.cache_size is None else {_WINDOW: self.cache_size}
        device = {"driver": _DEVICE, "id": f"{slot}-device", "chardev": chardev, "tag": slot, **queues, **window}
        devices = Devices(chardevs=((chardev, below.socket),), devices=(device,))
        # Room for the window in the guest's address space is made when it boots, and not for what is plugged in later.
        return Demands(devices, shared_memory=True, cold=bool(window))

    async def set_up(self, below: Share, context: LayerContext) -> Dir:
        node, path = context.node, context.path("virtiofs")
        await load_modules(node, "virtiofs")
        await context.register_undo("mount.unmount", path=path)
        await node.carry_out(steps.make_directory(path, parents=True))
        options = [*self.options, *(() if self.dax == "never" else (f"dax={self.dax}",))]
        words = ["-o", ",".join(options)] if options else []
        # That a device has no window for DAX is logged when it appears, and not when it is mounted.
        since = "" if self.dax != "never" else None
        words = [*words, "--", context.slot, path]
        await mount_attached(node, "virtiofs", words, _SAYS, since=since, timeout=_PATIENCE)
        return Dir(node.name, path)

    async def facts(self, resource: Dir, context: LayerContext) -> dict[str, Any]:
        asked = {"queue_size": self.queue_size, "queues": self.queues, "cache_size": self.cache_size}
        return {**asked, **await mount_facts(context.node, resource.path)}

    async def sever(self, resource: Dir, context: LayerContext) -> None:
        """Give the guest up where its daemon is gone: no request ever returns then, unmounting included."""
        try:
            async with asyncio.timeout(_SILENT):
                await context.node.run(["stat", "--file-system", "--", resource.path], check=False)
        except TimeoutError:
            context.node.connection.give_up(f"its virtiofsd did not answer within {_SILENT:g} s")
