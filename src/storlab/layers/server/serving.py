"""What confines a server of disks: it parses what its clients send, and has what it serves and its folder."""

from __future__ import annotations

from storlab.layers.resources import Disk, File
from storlab.layers.server.base import ServerContext
from storlab.nodes.node import Confinement
from storlab.nodes.privileges import NONE, TOOLS, confinement
from storlab.unused_users import unused_user


def to_what_it_serves(server: ServerContext[File | Disk], program: str) -> Confinement | None:
    """As a user that nobody is, to whom the file or disk is handed; or as root, among its own files alone.

    ``None`` in a guest, which is the wall.
    """
    below = server.below
    if server.node.identity.volatile:
        return None
    privileges = TOOLS.get(program, NONE)
    files, disks = ((below.path,), ()) if isinstance(below, File) else ((), (below.path,))
    return confinement(
        server.node,
        privileges,
        writable=(*server.folders, *files),
        devices=disks,
        visible=() if isinstance(below, Disk) or below.backing is None else (below.backing,),
        user=unused_user(),
        network=server.host is not None,
        bare=privileges.as_root,
    )
