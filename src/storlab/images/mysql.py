"""A MySQL server, which is in no stable Debian: sid's, unpacked. It reads its messages and character sets as well."""

from __future__ import annotations

from storlab.images.unpacked import Unpacked

_RECIPE = 1  # raised when what is made here changes

MYSQL = Unpacked(
    f"mysql-{_RECIPE}",
    "mysqld",
    "sid",
    "mysql-server-core",
    path="usr/sbin/mysqld",
    space=1_500_000_000,
    beside={
        "usr/share/mysql/english": "english",
        "usr/share/mysql/charsets": "charsets",
        # It loads this one at each start, and says so where it is missing.
        "usr/lib/mysql/plugin/component_reference_cache.so": "plugin/component_reference_cache.so",
    },
)
