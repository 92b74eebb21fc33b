"""Watching what has no process of its own that could end: a server in the kernel, and the network up to it.

Each is a small program that runs for as long as all is well, and ends with a sentence that says what is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from storlab.layers.resources import Export, Resource, Share
from storlab.layers.server.base import ServerContext, ServerLayer
from storlab.nodes.needs import Needs

_EVERY = 0.5  # s
_OUTAGE = 4  # requests in a row without an answer: more than chance, even where one in twenty is lost

# Answers that come late say that a machine is busy; one that never comes, that the network or the machine was gone.
# Each that comes says by its number how many before it never will. ``read -t`` is for a ping that is stuck itself.
_REACHABLE = r"""
name=$1 host=$2 every=$3 outage=$4 limit=$5 seen=0
seconds() { printf '%d.%d' $(($1 / 10)) $(($1 % 10)); }
exec {answers}< <(exec ping -n -O -i "$every" "$host" 2>&1)
while read -r -t $((limit + 5)) -u "$answers" line; do
    number=${line##*icmp_seq=} number=${number%% *}
    case $line in
    *"bytes from"*icmp_seq=*)
        ((seen)) || : > up
        if ((number - seen > outage)) && ((seen)); then
            echo "$name ($host) was unreachable for $(seconds $(((number - seen) * 5))) s"
            exit 1
        fi
        seen=$number ;;
    *"no answer yet for icmp_seq="*)
        if (((number - seen) * 5 >= limit * 10)); then
            echo "no answer from $name ($host) for $(seconds $(((number - seen) * 5))) s"
            exit 1
        fi ;;
    esac
done
echo "$name ($host) can't be reached: ${line:-ping ended}"
exit 1
"""

# One file, one line: with bash's own read and wait, so that watching starts no process each second.
_SAYS = r"""
exec {never}<> <(:)
: > up
while read -r line < "$1" && [[ $line == $2 ]]; do
    read -r -t 1 -u "$never"
done
echo "$3"
exit 1
"""


class _Watch(ServerLayer):
    """A shell script that ends where something is wrong, with a sentence."""

    takes: ClassVar = (None,)
    gives: ClassVar = Resource
    program: ClassVar = "bash"
    stop_patience: ClassVar = 5.0

    async def answers(self, server: ServerContext) -> bool:
        """It makes this file once it has seen that all is well."""
        return (await server.node.run(["test", "-e", f"{server.folder}/up"], check=False)).ok

    async def resource(self, server: ServerContext) -> Resource:
        return Resource(server.node.name)

    def reason(self, how: str, lines: Sequence[str]) -> str:
        return how if lines == ["no output"] else lines[-1]


class Reachable(_Watch):
    """The node that serves a share, or a disk, answers over the network."""

    layer: Literal["reachable"] = "reachable"
    give_up: float = Field(10.0, description="Seconds of silence after which it is gone.")

    start_patience: ClassVar = 30.0

    def needs(self) -> Needs:
        return super().needs() | Needs(programs=("ping",))

    def command(self, server: ServerContext) -> Sequence[str]:
        assert isinstance(server.below, Share | Export)
        numbers = [str(_EVERY), str(_OUTAGE), str(max(round(self.give_up), 1))]
        return [self.program, "-c", _REACHABLE, "watch", f"node {server.below.node}", server.below.host, *numbers]


class FileSays(_Watch):
    """The first line of a file of the kernel's is as it should be."""

    layer: Literal["file-says"] = "file-says"
    path: str = Field(description="The file.")
    pattern: str = Field(description="What the line must match, as a pattern of the shell's.")
    otherwise: str = Field(description="What is wrong where it does not, or is not there.")

    def command(self, server: ServerContext) -> Sequence[str]:
        return [self.program, "-c", _SAYS, "watch", self.path, self.pattern, self.otherwise]
