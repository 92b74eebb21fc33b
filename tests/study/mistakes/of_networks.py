"""Networks that no node is on, that cannot be, and that would change under what is kept."""

# ruff: noqa: E501 - a message stands on the line that it is about

from . import read

_NODES = """
[nodes.server]
kind = "vm"
keep = "run"
stack = [{ layer = "file", size = "64M" }, { layer = "virtio-blk" }]
"""
_CLIENT = """
[nodes.client]
kind = "vm"
from = "server"
stack = [{ layer = "nbd-export" }, { layer = "nbd" }, { layer = "mkfs", type = "ext4" }, { layer = "mount" }]
"""
_TWO = _NODES + _CLIENT

MISTAKES = read(
    {
        "a network where no node is on one": """
[network]  #! no node of this study is on a network: a crossing such as nbd puts them on one
delay = "1ms"
""",
        "a network of guests that serve each other nothing": """
stack = [{ layer = "directory" }]
[network]  #! no node of this study is on a network
mtu = 9000
[nodes.vm]
kind = "vm"
count = 2
""",
        "a bandwidth in words": f"""
[network]
bandwidth = "fast"  #! "fast" is not a bandwidth: write bits per second, such as "100Mbit" or "1Gbit", or "unlimited"
{_TWO}""",
        "a bandwidth in bytes": f"""
[network]
bandwidth = "100MB/s"  #! "100MB/s" is not a bandwidth
{_TWO}""",
        "a loss of everything": f"""
[network]
loss = "100%"  #! "100%" must lie between 0 % and 100 %
{_TWO}""",
        "jitter without a delay": f"""
[network]  #! jitter varies the delay: write delay, too
jitter = "1ms"
{_TWO}""",
        "an unknown key of the network": f"""
[network]
latency = "1ms"  #! this key is unknown
{_TWO}""",
        "a level of the network that cannot be": f"""
[factors]
mtu = [1500, 90]  #! 90
[network]
mtu = "{{mtu}}"
{_TWO}""",
        "FACK": f"""
{_NODES}
[nodes.server.tcp]  #! Linux has no FACK since 4.15, and its sysctl does nothing; RACK took its place: write recovery
fack = false
{_CLIENT}""",
        "an unknown setting of TCP": f"""
{_NODES}
[nodes.server.tcp]
reno = true  #! this key is unknown
{_CLIENT}""",
        "TCP of this machine": """
[nodes.host]
stack = [{ layer = "directory" }]
tcp = { sack = false }  #! the nodes host are on no network among nodes, and their TCP is this machine's: leave tcp out
""",
        "TCP of guests on no network": """
[nodes.vm]
kind = "vm"
stack = [{ layer = "directory" }]
tcp = { sack = false }  #! the nodes vm are on no network: nothing is served to them, or by them, over one
""",
        "an initiator that is kept over a network that changes": f"""
[factors]
mtu = [1500, 9000]
[network]
mtu = "{{mtu}}"
{_NODES}
[nodes.client]
kind = "vm"
keep = "run"
from = "server"
stack = [
  {{ layer = "nbd-export" }},  #! layer nbd-export is kept for the run, but the network that it works over differs
  {{ layer = "nbd" }},
]
""",
        "a target that is kept under TCP that changes": f"""
[factors]
sack = [true, false]
{_NODES}
[nodes.client]
kind = "vm"
from = "server"
tcp = {{ sack = "{{sack}}" }}
stack = [
  {{ layer = "nbd-export", keep = "round" }},  #! layer nbd-export is kept for a round, but the network that it works over differs from cell to cell: write keep = "trial"
  {{ layer = "nbd" }},
]
""",
    }
)
