#!/bin/bash
# `make image`: builds the image that virtual machines boot, with ZFS, and unpacks what shares folders with them,
# and MySQL.
# `make image WITH=` builds it without ZFS, in a third of the time. What is finished is used again.

. "$(dirname -- "${BASH_SOURCE[0]}")/lib/common.sh"
. scripts/lib/packages.sh
. scripts/lib/python.sh

need_writable_checkout
need_python
need_packages image
install_packages image
python_environment demo
read -ra extras <<<"${WITH-zfs}"
.venv/bin/storlab image build "${extras[@]/#/--with=}"
virtiofsds
unstable_mysql
