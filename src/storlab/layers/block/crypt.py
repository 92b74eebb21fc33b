"""Layer ``crypt``: an encrypted disk by the kernel's dm-crypt, with or without a header of LUKS2, see cryptsetup(8).

The key is random, the run's own, and is kept in no file: it goes from the controller's memory to cryptsetup's
standard input. A header's key would be stretched for seconds (argon2id), which protects a password that somebody
can guess; a random one has nothing to guess.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from storlab.base.errors import CommandFailed, Unsupported
from storlab.base.reach import Choice
from storlab.base.units import Size, power_of_two
from storlab.layers.base import Layer, LayerContext
from storlab.layers.block import mapper
from storlab.layers.block.identity import refuse_another
from storlab.layers.block.queue import queue_facts
from storlab.layers.fs.mkfs import filesystem_uuid, forget_filesystem
from storlab.layers.resources import Disk
from storlab.nodes.needs import Needs

_CIPHER = re.compile(r"(aes|serpent|twofish|camellia|xchacha(12|20),aes|cipher_null)-[a-z]+(-[a-z0-9]+(:sha256)?)?")
_KEY = 64  # bytes of the key that opens the header, or of the longest that encrypts
_STRETCHED = ("--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")
_REFUSED = re.compile(r"cipher|key size|sector size|not supported|not compatible", re.IGNORECASE)


class CryptLayer(Layer[Disk, Disk]):
    """Encrypts the underlying disk, with a random key that nobody keeps."""

    layer: Literal["crypt"] = "crypt"
    format: Literal["luks2", "plain"] = Field(
        "luks2", description="`luks2`: with a header of 16M, as distributions make it. `plain`: all of the disk."
    )
    cipher: Choice = Field(
        "aes-xts-plain64", description="Cipher, mode and IV: `aes-xts-plain64`, `xchacha12,aes-adiantum-plain64`, …"
    )
    key_size: Literal[128, 192, 256, 384, 512] = Field(512, description="Bits; XTS has two keys in one.")
    sector_size: Annotated[Size, power_of_two("sector size", 512, 4096)] = Field(
        512, description="What is encrypted at once: 512 to 4k. The disk above has sectors of this size."
    )
    discards: bool = Field(False, description="Pass on discards, which tell where data are: --allow-discards.")
    read_workqueue: bool = Field(True, description="false: decrypt where a read ends: --perf-no_read_workqueue.")
    write_workqueue: bool = Field(True, description="false: encrypt where a write begins: --perf-no_write_workqueue.")
    same_cpu: bool = Field(False, description="Encrypt on the CPU that asked for it: --perf-same_cpu_crypt.")
    submit_from_crypt_cpus: bool = Field(
        False, description="Send writes from where they were encrypted, unsorted: --perf-submit_from_crypt_cpus."
    )

    overwrites: ClassVar = True
    compared: ClassVar = ("type", "cipher", "keysize", "sector size", "offset", "flags")
    undoes: ClassVar = (mapper.remove, forget_filesystem)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not _CIPHER.fullmatch(self.cipher):
            raise ValueError(
                f"cipher = {self.cipher!r}: write cipher-mode-IV, as aes-xts-plain64, aes-cbc-essiv:sha256, "
                "serpent-xts-plain64 or xchacha12,aes-adiantum-plain64"
            )
        return self

    def label(self) -> str:
        return f"crypt {self.format}"

    def needs(self) -> Needs:
        return mapper.needs("dm_crypt", programs=("cryptsetup", "wipefs", "blkid"))

    async def set_up(self, below: Disk, context: LayerContext) -> Disk:
        node, name, key = context.node, mapper.name_of(context), secrets.token_bytes(_KEY)
        await refuse_another(node, below.path, below.device)
        nonce = secrets.token_hex(16)
        if self.format == "luks2" and not below.ours:  # first, so that it is undone once nothing holds the disk
            was = below.fingerprint
            await context.register_undo("mkfs.forget", device=below.path, run=context.run, nonce=nonce, was=was)
        await mapper.announce(context, name, "dm_crypt")
        keys = ("--cipher", self.cipher, "--key-size", str(self.key_size), "--sector-size", str(self.sector_size))
        try:
            if self.format == "luks2":
                head = ("cryptsetup", "luksFormat", "--batch-mode", "--type", "luks2")
                identity = ("--uuid", filesystem_uuid(context.run, nonce))
                words = [*head, *identity, *_STRETCHED, *keys, "--key-file", "-", "--", below.path]
                await node.run([*mapper.WITHOUT_UDEV, *words], stdin=key)
            await node.run([*mapper.WITHOUT_UDEV, *self._opening(below.path, name, keys)], stdin=key)
        except CommandFailed as error:
            if _REFUSED.search(error.detail):
                raise Unsupported(f"no such encryption here: {error}") from None
            raise
        disk = await mapper.kernels_name(node, name)
        return Disk(node.name, f"/dev/{disk}", await mapper.size_of(node, disk), ours=True)

    def _opening(self, device: str, name: str, keys: Sequence[str]) -> list[str]:
        flags = {
            "--allow-discards": self.discards,
            "--perf-no_read_workqueue": not self.read_workqueue,
            "--perf-no_write_workqueue": not self.write_workqueue,
            "--perf-same_cpu_crypt": self.same_cpu,
            "--perf-submit_from_crypt_cpus": self.submit_from_crypt_cpus,
        }
        chosen = [flag for flag, wanted in flags.items() if wanted]
        type_ = ["--type", self.format, *(keys if self.format == "plain" else ())]
        return ["cryptsetup", "open", "--batch-mode", *type_, *chosen, "--key-file", "-", "--", device, name]

    async def facts(self, resource: Disk, context: LayerContext) -> dict[str, Any]:
        said = await context.node.output("cryptsetup", "status", mapper.name_of(context))
        return {**mapper.parse_status(said, _SHOWN), **await queue_facts(context.node, resource)}


_SHOWN = ("type", "cipher", "keysize", "key location", "sector size", "offset", "size", "mode", "flags")
