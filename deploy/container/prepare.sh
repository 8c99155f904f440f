#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the image has beside its base: the package, the libraries that it recommends, the user 10001, the entry point, the
# health check and SageMaker's `serve` on the PATH, and the places that images of Triton with the TensorRT-LLM backend have:
# /opt/tritonserver/bin/tritonserver, /opt/tritonserver/backends/tensorrtllm, and in /app the scripts of the guides
# (launch_triton_server.py). Run as root, on Debian 12 or Ubuntu 24.04.
#
# usage: prepare.sh FILE.deb
set -eu
deb=$(realpath "$1")
export DEBIAN_FRONTEND=noninteractive
# By number, as Kubernetes asks for users that are not root; the package takes the user that is there.
groupadd --gid 10001 inflight
useradd --gid 10001 --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin inflight
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$deb" ca-certificates libcurl4 libedit2 libzmq5 python3
deploy=/usr/share/inflight/deploy
ln -sf $deploy/container/entrypoint.sh $deploy/container/health.sh $deploy/sagemaker/serve /usr/local/bin/
mkdir -p /opt/tritonserver/bin /opt/tritonserver/backends/tensorrtllm
ln -sf /usr/bin/inflight /opt/tritonserver/bin/tritonserver
inflight compat install /app
rm -rf /var/lib/apt/lists/*
