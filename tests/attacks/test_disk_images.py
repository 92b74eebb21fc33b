"""What an image of a disk may say of itself to get at other files of the machine that makes disks of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from laboratory.devices import sh
from layers.sites import ground_in
from storlab.errors import UserError

DESCRIBED = 'json:{{"driver":"raw","file":{{"driver":"file","filename":"{secret}"}}}}'


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (("-f", "qcow2", "-b", "{secret}", "-F", "raw"), "has its data in another file, {secret}: "),
        (("-f", "qcow2", "-b", DESCRIBED, "-F", "raw"), "has its data in another file, json:"),
        (("-f", "qcow2", "-o", "data_file={secret},data_file_raw=on"), "has its data in another file, {secret}: "),
        (("-f", "vmdk", "-b", "{base}", "-F", "vmdk"), "is an image in the format vmdk: take a raw or qcow2 one"),
    ],
    ids=["backing", "json", "data", "vmdk"],
)
async def test_an_image_brings_no_other_file_of_this_machine_into_a_disk(
    made: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    secret, base, image = tmp_path / "secret", tmp_path / "base.vmdk", tmp_path / "image"
    sh("qemu-img", "create", "-q", "-f", "vmdk", str(base), "1M")
    secret.write_bytes(b"secret" * 32768)
    size = () if "-b" in made else ("196608",)
    sh("qemu-img", "create", "-q", *(word.format(secret=secret, base=base) for word in made), str(image), *size)
    secret.write_bytes(b"secret" * 32768)
    async with ground_in(tmp_path) as ground:
        for layer in ("image-copy", "image-clone"):
            with pytest.raises(UserError) as refused:
                await ground.set_up({"layer": layer, "base": {"file": str(image)}})
            assert said.format(secret=secret) in str(refused.value)
