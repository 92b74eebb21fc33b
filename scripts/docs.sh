#!/bin/bash
# `make docs`: the documentation as pages to browse and search offline, in build/site. A broken link is an error.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
python_environment dev
quietly docs env NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
say "build/site/index.html"
