#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the image has beside Debian: the package, the libraries that it recommends, and the places that images of Triton with
# the TensorRT-LLM backend have: /opt/tritonserver/bin/tritonserver, /opt/tritonserver/backends/tensorrtllm, and in /app the
# scripts of the guides (launch_triton_server.py). Run as root, on Debian 12.
#
# usage: prepare.sh FILE.deb
set -eu
deb=$(realpath "$1")
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$deb" ca-certificates libcurl4 libedit2 libzmq5 python3
mkdir -p /opt/tritonserver/bin /opt/tritonserver/backends/tensorrtllm
ln -sf /usr/bin/inflight /opt/tritonserver/bin/tritonserver
inflight compat install /app
rm -rf /var/lib/apt/lists/*
