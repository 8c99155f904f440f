#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Object files of one instruction set must define no weak symbol: an inline function compiled there
# could be the copy that the linker keeps for everybody, and crash an older machine
# (docs/reference/kernels.md, "The CPU's kernels").   usage: check_isa_objects.sh OBJECT...
[ $# -gt 0 ] || { echo "no objects given"; exit 1; }
if "${NM:-nm}" --demangle --defined-only "$@" | grep -E ' [WwVvu] '; then
  echo "the symbols above may replace those of other files"
  exit 1
fi
echo "$# objects, no shared symbol"
