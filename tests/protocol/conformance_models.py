# SPDX-License-Identifier: Apache-2.0
"""Repositories of the built-in test models (backend "conformance") for black-box tests."""


def io(direction, name, dims, datatype="TYPE_INT32"):
    return f'{direction} {{ name: "{name}" data_type: {datatype} dims: {dims} }}\n'


def add_model(repository, name, kind, *more, files=None):
    """A model with version 1; `more` are parts of its configuration, `files` {path below it: bytes}."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    parts = [f'backend: "conformance"\nparameters {{ key: "kind" value {{ string_value: "{kind}" }} }}', *more]
    (folder / "config.pbtxt").write_text("\n".join(parts))
    for path, content in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


def add_identity(repository, name, *more, dims="[ 2 ]", **files):
    add_model(repository, name, "identity", io("input", "INPUT0", dims), io("output", "OUTPUT0", dims), *more, **files)


def add_ensemble(repository, name, step):
    """Passes INT32 [2] through `step`."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        'platform: "ensemble"\n' + io("input", "IN", "[ 2 ]") + io("output", "OUT", "[ 2 ]")
        + f'ensemble_scheduling {{ step {{ model_name: "{step}" model_version: -1 '
        'input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "OUT" } } }'
    )  # fmt: skip


def infer_body(values, name="INPUT0", **members):
    """The body of an infer request with one INT32 input."""
    return {"inputs": [{"name": name, "datatype": "INT32", "shape": [len(values)], "data": values}], **members}
