# SPDX-License-Identifier: Apache-2.0
"""A repository of models without weights: an identity, and `mock_llm` with and without streams."""

MOCK_LLM = """
backend: "conformance"
max_batch_size: 0
input [
  {{ name: "PROMPT" data_type: TYPE_STRING dims: [ 1, 1 ] }},
  {{ name: "STREAM" data_type: TYPE_BOOL dims: [ 1, 1 ] }},
  {{ name: "input_ids" data_type: TYPE_INT32 dims: [ 1, -1 ] optional: true }}
]
output [ {{ name: "TEXT" data_type: TYPE_STRING dims: [ 1, -1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
model_transaction_policy {{ decoupled: {decoupled} }}
parameters {{ key: "kind" value: {{ string_value: "mock_llm" }} }}
"""

IDENTITY = """
backend: "conformance"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_STRING dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
parameters { key: "kind" value: { string_value: "identity" } }
"""


def write_light_repository(path):
    configs = {
        "identity": IDENTITY,
        "mock_llm": MOCK_LLM.format(decoupled="true"),
        "mock_llm_whole": MOCK_LLM.format(decoupled="false"),
    }
    for name, config in configs.items():
        (path / name / "1").mkdir(parents=True)
        (path / name / "config.pbtxt").write_text(f'name: "{name}"\n{config}')
    return path
