"""All checks by name, in the order in which they are made and reported."""

from __future__ import annotations

from collections.abc import Callable

from . import attributes, between, files, names
from .processes import Steps

CHECKS: dict[str, Callable[[], str | None]] = {
    "rename-over-open": names.rename_over_open,
    "rename-keeps-inode": names.rename_keeps_inode,
    "rename-directory": names.rename_directory,
    "rename-noreplace": names.rename_noreplace,
    "rename-exchange": names.rename_exchange,
    "hard-link": names.hard_link,
    "symbolic-link": names.symbolic_link,
    "fifo": names.fifo,
    "unix-socket": names.unix_socket,
    "long-names": names.long_names,
    "any-bytes-in-names": names.any_bytes_in_names,
    "upper-and-lower-case": names.upper_and_lower_case,
    "remove-while-listing": names.removing_while_listing,
    "unlinked-fstat": files.unlinked_status,
    "unlinked-read-write": files.unlinked_contents,
    "tmpfile": files.unnamed,
    "append-atomic": files.appending,
    "exclusive-create": files.exclusive,
    "direct-io": files.direct,
    "fsync": files.synced,
    "fsync-directory": files.synced_directory,
    "lock-records": files.record_locks,
    "lock-wait": files.waiting_for_a_lock,
    "lock-open-file": files.open_file_locks,
    "flock": files.whole_file_locks,
    "mmap-private": files.private,
    "mmap-shared-write": files.shared_writing,
    "mmap-store-then-read": files.stored_then_read,
    "mmap-write-then-load": files.written_then_loaded,
    "mode-bits": attributes.modes,
    "owners": attributes.owners,
    "times-nanoseconds": attributes.times,
    "times-of-changes": attributes.changed_times,
    "birth-time": attributes.birth_time,
    "xattr-user": attributes.user_attributes,
    "acl-access": attributes.access_list,
    "acl-default": attributes.default_list,
    "truncate": files.truncated,
    "offsets-64-bit": files.far_offsets,
    "seek-data-hole": files.data_and_holes,
    "fallocate": files.allocated,
    "punch-hole": files.punched,
    "zero-range": files.zeroed,
    "copy-file-range": files.copied,
}

BETWEEN: dict[str, Callable[[bool], Steps]] = {
    "nodes-create": between.created,
    "nodes-remove": between.removed,
    "nodes-rename": between.renamed,
    "nodes-write-close-open": between.written_and_closed,
    "nodes-write-while-open": between.written_while_open,
    "nodes-mmap-read": between.stored_then_read,
    "nodes-mmap-load": between.stored_then_loaded,
    "nodes-lock-records": between.record_locks,
    "nodes-flock": between.whole_file_locks,
}
"""Those that take several nodes on the same files."""
