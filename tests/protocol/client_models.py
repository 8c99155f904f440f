# SPDX-License-Identifier: Apache-2.0
"""The models that the published client's example programs talk to, of the built-in backend."""

from conformance_models import add_identity, add_model, io
from live_server import start_server

REPEAT_TENSORS = (
    io("input", "IN", "[ -1 ]") + io("input", "DELAY", "[ -1 ]", "TYPE_UINT32") + io("input", "WAIT", "[ 1 ]", "TYPE_UINT32")
    + io("output", "OUT", "[ 1 ]") + io("output", "IDX", "[ 1 ]", "TYPE_UINT32")
)  # fmt: skip
SEQUENCE = """
sequence_batching {
  max_sequence_idle_microseconds: 5000000
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] }
  ]
}
"""
LABELS = b"cat\ndog\nbird\nfish\n"


def batches(size):
    return f"max_batch_size: {size}"


def pair(datatype):
    names = (("input", "INPUT0"), ("input", "INPUT1"), ("output", "OUTPUT0"), ("output", "OUTPUT1"))
    return "".join(io(direction, name, "[ 16 ]", datatype) for direction, name in names)


def write_client_models(path):
    path.mkdir()
    add_model(path, "simple", "addsub", batches(8), pair("TYPE_INT32"))
    add_model(path, "simple_string", "addsub", batches(8), pair("TYPE_STRING"))
    tensors = io("input", "INPUT0", "[ -1 ]", "TYPE_STRING") + io("output", "OUTPUT0", "[ -1 ]", "TYPE_STRING")
    add_model(path, "simple_identity", "identity", batches(8), tensors)
    tensors = io("input", "INPUT", "[ 1 ]") + io("output", "OUTPUT", "[ 1 ]")
    add_model(path, "simple_sequence", "accumulate", batches(8), tensors, SEQUENCE)
    # OUTPUT1 = INPUT0 - INPUT1, where INPUT1 is the sum of the sequence's earlier INPUT0, from 100 on.
    state = """sequence_batching { max_sequence_idle_microseconds: 5000000 state {
        input_name: "INPUT1" output_name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 1 ]
        initial_state { name: "first" data_type: TYPE_INT32 dims: [ 1 ] data_file: "hundred" } } }"""
    tensors = io("input", "INPUT0", "[ 1 ]") + io("output", "OUTPUT1", "[ 1 ]")
    files = {"initial_state/hundred": (100).to_bytes(4, "little")}
    add_model(path, "implicit_state", "addsub", batches(8), tensors, state, files=files)
    add_model(path, "repeat_int32", "repeat", REPEAT_TENSORS, "model_transaction_policy { decoupled: true }")
    tensors = io("input", "INPUT0", "[ 1 ]") + io("input", "DELAY", "[ 1 ]") + io("output", "OUTPUT0", "[ 1 ]")
    add_model(path, "slow", "slow", tensors)
    tensors = io("input", "INPUT0", "[ 4 ]", "TYPE_FP32")
    tensors += 'output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" }'
    add_model(path, "labeled", "identity", batches(4), tensors, files={"labels.txt": LABELS})
    tensors = io("input", "text_input", "[ 1 ]", "TYPE_STRING") + io("input", "stream", "[ 1 ]", "TYPE_BOOL")
    tensors += io("output", "text_output", "[ 1 ]", "TYPE_STRING")
    add_model(path, "words", "words", tensors, "model_transaction_policy { decoupled: true }")
    add_identity(path, "spare")
    return path


def start_client_models(work_dir, *options):
    """A server that has them, and loads those that the options name."""
    repository = write_client_models(work_dir / "models")
    return start_server(
        work_dir, None, "--model-repository", repository, "--model-control-mode=explicit", "--allow-client-shm=true", *options
    )
