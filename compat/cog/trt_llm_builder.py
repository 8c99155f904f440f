#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the archive of an engine by a config.yaml of cog-trt-llm, a file or a URL.

    model_id: gpt2                 a model of the Hugging Face hub, as `inflight` finds it
    example_name: gpt              a folder of TRTLLM_DIR/examples
    convert_to_ft:                 the steps, in this order: convert_to_ft, quantize, build
      executable: python           unless it says trtllm-build
      script: hf_gpt_convert.py
      output_dir: ./c-model/gpt2
      args: {in-file: gpt2, use_inflight_batching: }    without a value: a bare flag

Steps run in this folder; engine.tar has what the last one wrote, and the tokenizer's files of --model-dir.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import urllib.request

import yaml
from unpack_archive import unpack_archive

STEPS = ("convert_to_ft", "quantize", "build")
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "generation_config.json", "chat_template.jinja",
)  # fmt: skip


def read_config(place):
    try:
        if place.startswith(("http://", "https://")):
            with urllib.request.urlopen(place, timeout=60) as answer:
                text = answer.read()
        else:
            text = pathlib.Path(place).read_text()
        config = yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        sys.exit(f"{place}: {error}")
    if not isinstance(config, dict):
        sys.exit(f"{place}: got {type(config).__name__}, a mapping of keys is needed")
    for key in ("model_id", "example_name"):
        if key not in config:
            sys.exit(f"{place}: `{key}` is missing")
    if not any(step in config for step in STEPS):
        sys.exit(f"{place}: it has no step, known are {', '.join(STEPS)}")
    if not str(config.get("model_tar_url") or ".tar").endswith(".tar"):
        sys.exit(f"{place}: model_tar_url: got {config['model_tar_url']}, it must end with .tar")
    return config


def command_of(step, told, examples):
    """A step's command; also the folder that it writes."""
    for key in ("output_dir", "args"):
        if key not in told:
            sys.exit(f"{step}: `{key}` is missing")
    executable = told.get("executable", "python")
    if executable == "trtllm-build":
        command = [executable]
    elif executable == "python":
        script = examples / str(told.get("script"))
        if not script.is_file():
            sys.exit(f"{step}: script: {script} is not there")
        command = [sys.executable, str(script)]
    else:
        sys.exit(f"{step}: executable: got {executable}, known are python and trtllm-build")
    for name, value in (told["args"] or {}).items():
        command += [f"--{name}", *([str(value)] if value else [])]
    return command, pathlib.Path(told["output_dir"])


def run(config, examples, model_dir, output):
    written = None
    for step in STEPS:
        if step not in config:
            continue
        command, written = command_of(step, config[step] or {}, examples)
        if written.exists():
            shutil.rmtree(written)
        print(f"{step}: {' '.join(command)}", flush=True)
        if (status := subprocess.run(command, check=False).returncode) != 0:
            sys.exit(f"{step}: it ended with status {status}")
    if not written.is_dir():
        sys.exit(f"build: output_dir: {written} is not there, the step wrote elsewhere")
    for name in (*TOKENIZER_FILES, *(path.name for path in model_dir.glob("*.tiktoken"))):
        if (model_dir / name).exists() and not (written / name).exists():
            shutil.copy(model_dir / name, written / name)
    (written / "cog-trt-llm-config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    with tarfile.open(output, "w") as archive:
        for path in sorted(written.rglob("*")):
            if path.is_file():
                archive.add(path, path.relative_to(written))
    print(f"wrote {output}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Makes the archive of an engine by a config.yaml of cog-trt-llm.")
    parser.add_argument("config", help="the configuration, a file or a URL")
    parser.add_argument("--model-dir", help="the model (default: models/MODEL_ID, where model_tar_url is unpacked)")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("engine.tar"), help="the archive")
    arguments = parser.parse_args()
    config = read_config(arguments.config)
    root = pathlib.Path(os.environ.get("TRTLLM_DIR", "tensorrt_llm"))
    examples = root / "examples" / config["example_name"]
    if not examples.is_dir():
        sys.exit(f"example_name: {examples} is not there; `inflight compat install DIR` makes it, TRTLLM_DIR is DIR/tensorrt_llm")
    model_dir = pathlib.Path(arguments.model_dir or pathlib.Path("models") / config["model_id"])
    if config.get("model_tar_url"):
        unpack_archive("model_tar_url", config["model_tar_url"], model_dir)
    run(config, examples, model_dir, arguments.output)


if __name__ == "__main__":
    main()
