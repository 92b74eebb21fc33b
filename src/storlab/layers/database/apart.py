"""What a server sees otherwise than the rest of its machine: a mount in a namespace that ends with it.

What other runs have mounted is let go of there: a copy would keep it in use after they have unmounted it, where mounts
do not propagate.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_LET_GO = """
while read -r _ _ _ _ mounted _; do
    case $mounted in */storlab-* | */.storlab-*) ;; *) continue ;; esac
    case $1/ in "$mounted"/*) continue ;; esac
    case $2/ in "$mounted"/*) continue ;; esac
    umount --no-mtab --lazy -- "$mounted" 2> /dev/null
done < /proc/self/mountinfo
shift 2
exec "$@"
"""


def apart(mount: Sequence[str], kept: tuple[str, str], words: Sequence[str]) -> list[str]:
    """A command that mounts something, with the options and operands ``mount``, for what ``words`` start alone.

    ``kept``: two paths on mounts of Storlab's that it needs. As root.
    """
    script = f"{shlex.join(['mount', '--no-mtab', *mount])} || exit{_LET_GO}"
    return ["unshare", "--mount", "--propagation=slave", "--", "sh", "-c", script, "sh", *kept, *words]
