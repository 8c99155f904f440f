#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the target cog has beside a server's image: `python`, what the stand-in for cog imports, and a project in /src that it
# reads. Run as root, after prepare.sh.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends python-is-python3 python3-yaml
mkdir -p /src
cp /usr/share/inflight/deploy/container/cog.yaml /src/
rm -rf /var/lib/apt/lists/*
