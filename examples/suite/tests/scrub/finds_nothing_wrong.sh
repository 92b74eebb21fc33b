#!/bin/bash
set -e
zpool scrub -w tank
zpool status tank | grep -q "repaired 0B.* with 0 errors"
