#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills configurations of models by a config.yaml of cog-triton: of each model `args` go into its template.

    instantiate:
      server:
        tensorrt_llm:
          args: {triton_max_batch_size: 64, decoupled_mode: True}
          template: triton_templates/tensorrt_llm/config.pbtxt      # unless it says otherwise
          output: ./triton_model_repo/tensorrt_llm/config.pbtxt     # the same

A file without `instantiate` is what stands below `server`. Names of a template that `args` lack stay as they are.
"""

import argparse
import pathlib
import string
import sys

import yaml

MODELS = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")
KEYS = {"args", "template", "output"}


def server_config(config):
    """What is said of the models; None where that is nothing."""
    return (config["instantiate"] or {}).get("server") if "instantiate" in config else config


def generate_configs(config):
    for model in MODELS:
        if model not in config:
            continue
        told = config[model] or {}
        if unknown := set(told) - KEYS:
            sys.exit(f"{model}: unknown keys {', '.join(sorted(unknown))}, known are {', '.join(sorted(KEYS))}")
        template = pathlib.Path(told.get("template", f"triton_templates/{model}/config.pbtxt"))
        output = pathlib.Path(told.get("output", f"./triton_model_repo/{model}/config.pbtxt"))
        try:
            text = string.Template(template.read_text()).safe_substitute(told.get("args") or {})
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text)
        except OSError as error:
            sys.exit(f"{model}: {error}")


def main():
    parser = argparse.ArgumentParser(description="Fills configurations of models by a config.yaml.")
    parser.add_argument("yaml_file", type=pathlib.Path, help="the configuration")
    arguments = parser.parse_args()
    try:
        config = yaml.safe_load(arguments.yaml_file.read_text())
    except (OSError, yaml.YAMLError) as error:
        sys.exit(f"{arguments.yaml_file}: {error}")
    generate_configs(server_config(config) or {})


if __name__ == "__main__":
    main()
