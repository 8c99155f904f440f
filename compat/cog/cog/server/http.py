# SPDX-License-Identifier: Apache-2.0
"""`python -m cog.server.http` in the folder of a cog-triton project: starts `inflight serve` with its front end of cog.

What it reads is what cog-triton reads: cog.yaml, COG_TRITON_CONFIG (config.yaml), triton_model_repo, ENGINE_DIR, WORLD_SIZE,
COG_WEIGHTS, PORT, COG_LOG_LEVEL. The server reads the rest (docs/reference/protocol/cog.md, "Variables"). Flags that are not
those of cog go to `inflight serve`. INFLIGHT names its program where that is not in PATH.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from triton_config_generator import generate_configs, server_config
from unpack_archive import unpack_archive

REPOSITORY = pathlib.Path("triton_model_repo")
LOG_FLAGS = {
    "debug": ["--log-verbose=1"],
    "info": [],
    "warning": ["--log-info=false"],
    "warn": ["--log-info=false"],
    "error": ["--log-info=false", "--log-warning=false"],
    "critical": ["--log-info=false", "--log-warning=false"],
}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="python -m cog.server.http", description="Cog HTTP server")
    parser.add_argument("--host", default="0.0.0.0", help="address of all ports")
    parser.add_argument("--threads", type=int, help="I/O threads of cog's port (default: by cores)")
    parser.add_argument("--upload-url", help="where files of outputs would go; this predictor's outputs are texts")
    parser.add_argument("--await-explicit-shutdown", type=bool, default=False,
                        help="not SIGTERM ends the server, but POST /shutdown or SIGINT")  # fmt: skip
    parser.add_argument("--x-mode", default="predict", choices=["predict", "train"], help="predict alone is supported")
    return parser.parse_known_args()


def read_yaml(path):
    try:
        value = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        sys.exit(f"{path}: {error}")
    if not isinstance(value, dict):
        sys.exit(f"{path}: got {type(value).__name__}, a mapping of keys is needed")
    return value


def flags_of_project(path=pathlib.Path("cog.yaml")):
    """What cog.yaml says that a server has a use for: whether it has a GPU, how many predictions run at a time."""
    if not path.exists():
        sys.exit("cog.yaml: it is not in this folder, which should be that of the project (`predict: predict.py:Predictor`)")
    config = read_yaml(path)
    if "predict" not in config:
        sys.exit("cog.yaml: `predict` is missing")
    flags = []
    most = (config.get("concurrency") or {}).get("max", 1)
    if not isinstance(most, int) or most < 1:
        sys.exit(f"cog.yaml: concurrency.max: got {most!r}, a number of at least 1 is needed")
    flags += [f"--cog-concurrency={most}"]
    if not (config.get("build") or {}).get("gpu", False):
        flags += ["--device=cpu"]
    return flags


def what_to_serve():
    """The arguments that name it."""
    if int(os.environ.get("WORLD_SIZE") or 1) != 1:
        sys.exit(f"WORLD_SIZE: got {os.environ['WORLD_SIZE']}, one rank serves: build the engine for one GPU")
    config = pathlib.Path(os.environ.get("COG_TRITON_CONFIG") or "config.yaml")
    if config.exists():
        print(f"Loading cog-triton config from {config}", flush=True)
        generate_configs(server_config(read_yaml(config)) or {})
    else:
        print(f"Config file {config} not found. Defaults will be used.", flush=True)
    engine = pathlib.Path(os.environ.get("ENGINE_DIR") or REPOSITORY / "tensorrt_llm/1")
    if weights := os.environ.get("COG_WEIGHTS"):
        unpack_archive("COG_WEIGHTS", weights, engine)
    if (REPOSITORY / "ensemble/config.pbtxt").exists():
        return [f"--model-repository={REPOSITORY}"]
    if engine.is_dir() and any(engine.iterdir()):
        return [str(engine)]
    sys.exit(f"there is neither {REPOSITORY}/ensemble/config.pbtxt nor an engine in {engine}")


def command_line(arguments, others):
    if arguments.x_mode == "train":
        sys.exit("--x-mode: got train, this predictor has no training")
    if arguments.upload_url:
        print("--upload-url: outputs of this predictor are texts, nothing is uploaded", flush=True)
    level = os.environ.get("COG_LOG_LEVEL", "info").lower()
    if level not in LOG_FLAGS:
        sys.exit(f"COG_LOG_LEVEL: got {level}, known are {', '.join(LOG_FLAGS)}")
    project = flags_of_project()
    program = os.environ.get("INFLIGHT") or shutil.which("inflight")
    if program is None:
        sys.exit("inflight is not in PATH; INFLIGHT names its program")
    return [
        program, "serve", *what_to_serve(), f"--cog-port={os.environ.get('PORT') or 5000}", f"--cog-address={arguments.host}",
        f"--http-address={arguments.host}", f"--grpc-address={arguments.host}",
        *([f"--cog-thread-count={min(arguments.threads, 128)}"] if arguments.threads else []),
        *(["--exit-on-error=false"] if arguments.await_explicit_shutdown else []),
        *LOG_FLAGS[level], *project, *others,
    ]  # fmt: skip


def main():
    arguments, others = parse_arguments()
    command = command_line(arguments, others)
    # A group of its own: what a terminal sends to all comes by way of this process alone.
    server = subprocess.Popen(command, start_new_session=True)

    def end(*_):
        server.send_signal(signal.SIGTERM)

    def ignore(number, _):
        print(f"Got a signal to exit, ignoring it... signal={number}", flush=True)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, ignore if arguments.await_explicit_shutdown else end)
    sys.exit(255 if server.wait() != 0 else 0)


if __name__ == "__main__":
    main()
