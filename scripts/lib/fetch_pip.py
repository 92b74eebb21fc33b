"""Fetches pip with nothing but Python: ``python3 fetch_pip.py FILE.whl``, to be run as ``FILE.whl/pip``.

For a Python without pip, and without what ``venv`` needs to make one: Debian's, where packages can't be installed.
The page is a package index as PEP 503 describes it, so a mirror will do: ``$PIP_INDEX_URL``.
"""

import hashlib
import os
import re
import sys
from pathlib import Path
from urllib.parse import urljoin
from urllib.request import urlopen

WHEEL = "pip-26.3-py3-none-any.whl"
SHA256 = "f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"

index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
with urlopen(f"{index}/pip/", timeout=60) as page:
    link = re.search(rf'href="([^"]*/{re.escape(WHEEL)})[#"]', page.read().decode())
    if link is None:
        sys.exit(f"{page.url} has no {WHEEL}")
    address = urljoin(page.url, link[1])
with urlopen(address, timeout=60) as answer:
    content = answer.read()
if hashlib.sha256(content).hexdigest() != SHA256:
    sys.exit(f"{address} is not the file that it should be: its checksum differs")
Path(sys.argv[1]).write_bytes(content)
