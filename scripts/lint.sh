#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a reviewer would otherwise say: layers, sizes, references, prose, decisions by words, formatting, spelling, style of
# Python, and what goes wrong in shell.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 scripts/check_layers.py
python3 scripts/check_sizes.py
python3 scripts/check_references.py
python3 scripts/check_prose.py
python3 scripts/check_promises.py
python3 scripts/check_messages.py
git ls-files '*.h' '*.cc' '*.cu' | xargs clang-format-16 --dry-run --Werror
echo "clang-format: clean"
git ls-files '*.md' '*.h' '*.cc' '*.py' '*.sh' '*.txt' ':!models' ':!tests/golden/data' |
  xargs codespell --ignore-words-list=inflight,nowns,atleast,filetest,ans,te,nd,fo,sie,ser,crate,inout,datas,unparseable,seperator,kinf,sistem,temprature
echo "codespell: clean"
# SC2016: commands for another shell, in a chroot say, stand between single quotes on purpose.
git grep -lIE '^#!(/bin/sh|/bin/bash|/usr/bin/env bash)$' | xargs shellcheck --exclude=SC2016
echo "shellcheck: clean"
.venv/bin/ruff check --quiet .
echo "ruff: clean"
