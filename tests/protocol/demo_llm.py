# SPDX-License-Identifier: Apache-2.0
"""The demo model as an LLM of a repository, without pre- and postprocessing: one that may be loaded and unloaded."""

import shutil

from live_server import DEMO

CONFIG = """backend: "tensorrtllm"
max_batch_size: 4
input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] }
input { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } }
input { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] }
"""


def add_demo_llm(repository):
    folder = repository / "tensorrt_llm"
    shutil.copytree(DEMO, folder / "1")
    (folder / "config.pbtxt").write_text(CONFIG)
