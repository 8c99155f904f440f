#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `inflight compat install DIR` runs: lays out scripts and model repositories where the guides of the back-end have them.

    DIR/all_models/{inflight_batcher_llm,gpt}   repositories of the release, as templates
    DIR/tensorrt_llm/examples/FAMILY/           converters and builders under their old names
    DIR/inflight_batcher_llm/client/ tools/ scripts/ ci/
    DIR/cog/                                    what `python -m cog.server.http` finds by PYTHONPATH
    DIR/bin/                                    inflight, tritonserver, trtllm-build
    DIR/all_models/llmapi                       from 0.19 on
    DIR/tensorrt_llm/triton_backend             from 0.20 on: DIR by the path that these releases have

What an earlier call laid out is replaced, other files stay; what others put there under these names is an error.
"""

import argparse
import pathlib
import shutil
import sys

from gpt_repository import write_gpt_repository
from llm_api_repository import write_llm_api_repository
from release_repositories import RELEASES, write_repository

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "layout"
MARK = ".inflight-compat"
PYTHON_MODELS = HERE / "python_models"  # for NVIDIA's server with our plug-in; our own server does not run them
FAMILIES = {  # of tensorrt_llm/examples: what their guides call
    **dict.fromkeys(("falcon", "gptj", "gptneox", "opt", "qwen"), ("convert_checkpoint.py", "build.py")),
    **dict.fromkeys(("medusa", "phi"), ("convert_checkpoint.py",)),
    "gemma": ("gemma/convert_checkpoint.py",),
    "gpt": ("convert_checkpoint.py", "hf_gpt_convert.py", "build.py"),
    "llama": ("convert_checkpoint.py", "hf_llama_convert.py", "build.py"),
}
# The releases of all_models by their names: where a table has no row of its own, the one before it declares the same.
NAMES = [*(f"0.{minor}" for minor in range(5, 22)), "1.0", "1.1", "1.2"]


def number_of(release):
    """The number that release_repositories has for "0.10" or "1.0"."""
    major, minor = map(int, release.split("."))
    return max(number for number in RELEASES if major == 1 or number <= minor)


def replace_repository(root, write):
    if root.exists():
        shutil.rmtree(root)
    write(root)


def refuse_what_others_made(root):
    """Exits where one of the names is taken and no earlier call laid it out: a checkout of the back-end, say."""
    if (root / MARK).exists():
        return
    names = ("all_models", "bin", "cog", *(path.name for path in SCRIPTS.iterdir()))
    taken = next((name for name in names if (root / name).exists()), None)
    if taken is not None:
        sys.exit(
            f"inflight compat install: {root / taken} is there, and was not laid out by this command: it would be replaced; "
            "give a directory without it"
        )


def place_link(link, target):
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def install(root, release, program):
    number = number_of(release)
    root.mkdir(parents=True, exist_ok=True)
    refuse_what_others_made(root)
    (root / MARK).write_text(f"release {release}\n")
    without = shutil.ignore_patterns("__pycache__", *(pathlib.Path(name).name for names in FAMILIES.values() for name in names))
    shutil.copytree(SCRIPTS, root, dirs_exist_ok=True, ignore=without)
    for family, names in FAMILIES.items():
        folder = root / "tensorrt_llm/examples" / family
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy(SCRIPTS / "tensorrt_llm/examples" / name, folder / pathlib.Path(name).name)
    shutil.copy(SCRIPTS / "tools/fill_template.py", root / "scripts/triton_fill_template.py")
    shutil.copytree(HERE / "cog", root / "cog", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    models = root / "all_models/inflight_batcher_llm"
    replace_repository(models, lambda path: write_repository(path, number))
    for script in PYTHON_MODELS.glob("*.py"):
        if (models / script.stem).exists():
            shutil.copy(script, models / script.stem / "1/model.py")
    replace_repository(root / "all_models/gpt", lambda path: write_gpt_repository(path, number))
    if number >= 19:
        replace_repository(root / "all_models/llmapi", lambda path: write_llm_api_repository(path, number))
    if number >= 20:
        place_link(root / "tensorrt_llm/triton_backend", "..")
    for name in ("inflight", "tritonserver"):
        place_link(root / "bin" / name, program)


def main():
    parser = argparse.ArgumentParser(description="Lays out scripts and model repositories of the TensorRT-LLM back-end.")
    parser.add_argument("directory", help="where they are laid out")
    parser.add_argument("--release", default="0.10", help=f"release of all_models: {', '.join(NAMES)}")
    parser.add_argument("--program", required=True, help="the program inflight, which the scripts call")
    arguments = parser.parse_args()
    if arguments.release not in NAMES:
        sys.exit(f"inflight: --release: got '{arguments.release}', needs one of {', '.join(NAMES)}")
    root = pathlib.Path(arguments.directory)
    try:
        install(root, arguments.release, pathlib.Path(arguments.program).resolve())
    except (OSError, shutil.Error) as error:
        sys.exit(f"inflight compat install: {root} cannot be written: {error}")
    print(f"laid out in {root}: the scripts of the guides, all_models of release {arguments.release}")
    print(f'for trtllm-build and tritonserver:  export PATH="{root.resolve() / "bin"}:$PATH"')


if __name__ == "__main__":
    main()
