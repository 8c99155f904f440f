# SPDX-License-Identifier: Apache-2.0
"""What `inflight families` says is refused: opening a model of the family in that format for that backend fails by these
words."""

import json

import gguf
import gguf_models
import packed_models
import pytest
from command import error
from packed_models import TABLE
from test_gguf import MODELS

FIELD_OF = {row["name"]: row["field"] for row in TABLE["formats"]}
REFUSED = [
    (backend, name)
    for backend in TABLE["backends"]
    for name in FIELD_OF
    if any(name in family["refused"][backend] for family in TABLE["families"])
]


def gguf_file(family, path):
    """One of the family; where it has no architecture of its own, one that names the family's type."""
    if not family["gguf"]:
        writer = gguf.GGUFWriter(path, family["model_type"])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path
    models = list(packed_models.models_of(family["architecture"]))
    return gguf_models.write(next((model for model in models if model.name in MODELS), models[0]), path)


def of_whole_groups(model, work):
    """The model with a width of dense layers that every format takes, where all its layers have experts and none is dense."""
    config = json.loads((model / "config.json").read_text())
    if "moe_intermediate_size" not in config:
        return model
    directory = work / model.name
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config | {"intermediate_size": config["moe_intermediate_size"]}))
    (directory / "model.safetensors").symlink_to(model / "model.safetensors")
    return directory


def refusal(family, backend, name, work):
    build = ["build", "--dry-run", "--output-dir", work / "no", "--target", backend, "--checkpoint-dir"]
    field = FIELD_OF[name]
    if field == "gguf":
        return error(*build, gguf_file(family, work / f"{family['architecture']}.gguf"))
    model = packed_models.whole_model_of(family["architecture"])
    if field == "quant_method":
        config = json.loads((model / "config.json").read_text())
        config["quantization_config"] = packed_models.METHODS[name][0]
        work = work / family["architecture"]
        work.mkdir()
        (work / "config.json").write_text(json.dumps(config))
        return error("inspect", work)
    option = {"dtype": "--dtype", "quant_algo": "--quant-algo"}[field]
    groups = ["--group-size", packed_models.GROUP] if name.endswith("_GPTQ") else []
    return error(*build, of_whole_groups(model, work), option, name, *groups)


@pytest.mark.parametrize(("backend", "name"), REFUSED)
def test_it_is_refused_by_these_words(backend, name, tmp_path):
    for family in TABLE["families"]:
        if words := family["refused"][backend].get(name):
            assert words in refusal(family, backend, name, tmp_path), family["architecture"]
