# SPDX-License-Identifier: Apache-2.0
"""What the published client's example programs do, against models of the same names and tensors: simple, string, shared memory,
model control, sequences (one by one and on a stream), repeat, async. The same models serve C++ and Java clients."""

import queue

import numpy as np
import pytest
from client_models import start_client_models
from four_clients import MODULES, Caller
from llm_client import Stream, is_final
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

PATIENCE_S = 30
BLOCKING = ("http", "grpc")
FIRST = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)


def texts(array):
    return np.array([str(n).encode() for n in array.reshape(-1)], dtype=object).reshape(array.shape)


@pytest.fixture(scope="module")
def examples_server(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("examples")
    server = start_client_models(work_dir, "--load-model=*")
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


def integers(c):
    return [c.input("INPUT0", FIRST, "INT32"), c.input("INPUT1", ONES, "INT32")]


@pytest.mark.parametrize("kind", list(MODULES))
def test_simple_string(examples_server, kind):
    with Caller(kind, examples_server) as c:
        inputs = [c.input("INPUT0", texts(FIRST), "BYTES"), c.input("INPUT1", texts(ONES), "BYTES")]
        result = c.infer("simple_string", inputs, outputs=[c.output("OUTPUT0"), c.output("OUTPUT1")])
        assert (result.as_numpy("OUTPUT0") == texts(FIRST + 1)).all()
        assert (result.as_numpy("OUTPUT1") == texts(FIRST - 1)).all()
        # Bytes that are no text, and with zeros inside.
        odd = np.array([[b"he\x00llo", b"", "ü€".encode()]], dtype=object)
        assert (c.infer("simple_identity", [c.input("INPUT0", odd, "BYTES")]).as_numpy("OUTPUT0") == odd).all()


@pytest.mark.parametrize("kind", list(MODULES))
def test_shared_memory_of_strings(examples_server, regions, kind):
    with Caller(kind, examples_server) as c:
        sent = [serialize_byte_tensor(texts(array)) for array in (FIRST, ONES)]
        sizes = [len(array.item()) for array in sent]
        (in_name, in_region), (out_name, out_region) = regions(sum(sizes)), regions(512)
        shared_memory.set_shared_memory_region(in_region, [sent[0]])
        shared_memory.set_shared_memory_region(in_region, [sent[1]], offset=sizes[0])
        c.register_system_shared_memory(in_name, in_name, sum(sizes))
        c.register_system_shared_memory(out_name, out_name, 512)
        inputs = [c.module.InferInput(name, [1, 16], "BYTES") for name in ("INPUT0", "INPUT1")]
        inputs[0].set_shared_memory(in_name, sizes[0])
        inputs[1].set_shared_memory(in_name, sizes[1], offset=sizes[0])
        outputs = [c.output("OUTPUT0"), c.output("OUTPUT1")]
        outputs[0].set_shared_memory(out_name, 256)
        outputs[1].set_shared_memory(out_name, 256, offset=256)
        c.infer("simple_string", inputs, outputs=outputs)
        for offset, expected in ((0, FIRST + 1), (256, FIRST - 1)):
            got = shared_memory.get_contents_as_numpy(out_region, np.object_, [1, 16], offset=offset)
            assert (got == texts(expected)).all()
        # The same objects once more, with their values in the request and the answer.
        for tensor, array in zip(inputs, (FIRST, ONES), strict=True):
            tensor.set_data_from_numpy(texts(array))
        for output in outputs:
            output.unset_shared_memory()
        result = c.infer("simple_string", inputs, outputs=outputs)
        assert (result.as_numpy("OUTPUT1") == texts(FIRST - 1)).all()
        c.unregister_system_shared_memory(in_name)
        c.unregister_system_shared_memory(out_name)


@pytest.mark.parametrize("kind", list(MODULES))
def test_model_control(examples_server, kind):
    with Caller(kind, examples_server) as c:
        spare = [c.input("INPUT0", np.array([7, 8], np.int32), "INT32")]
        c.load_model("spare")
        assert c.is_model_ready("spare")
        assert c.infer("spare", spare).as_numpy("OUTPUT0").tolist() == [7, 8]
        c.unload_model("spare")
        with pytest.raises(InferenceServerException, match="spare"):
            c.infer("spare", spare)
        with pytest.raises(InferenceServerException, match="failed to load 'wrong_name', failed to poll from model repository"):
            c.load_model("wrong_name")
        c.load_model("spare")


@pytest.mark.parametrize("kind", BLOCKING)
def test_many_requests_at_once(examples_server, kind):
    options = {"concurrency": 4} if kind == "http" else {}
    with Caller(kind, examples_server, **options) as c:
        answers = queue.Queue()
        if kind == "http":
            futures = [c.async_infer("simple", integers(c), request_id=str(i)) for i in range(20)]
            for future in futures:
                answers.put((future.get_result(), None))
        else:
            for i in range(20):
                c.async_infer("simple", integers(c), lambda result, error: answers.put((result, error)), request_id=str(i))
        ids = set()
        for _ in range(20):
            result, error = answers.get(timeout=PATIENCE_S)
            assert error is None, error
            assert (result.as_numpy("OUTPUT0") == FIRST + 1).all()
            ids.add(result.get_response()["id"] if kind == "http" else result.get_response().id)
        assert ids == {str(i) for i in range(20)}


# --- sequences: each adds up its own values ---

VALUES = [11, 7, 5, 3, 2, 0, 1]
SUMS = np.cumsum(VALUES).tolist()


def one_value(c, value):
    return [c.input("INPUT", np.array([[value]], np.int32), "INT32")]


@pytest.mark.parametrize("ids", [(1001, 1002), ("left", "right")], ids=["numbers", "names"])
@pytest.mark.parametrize("kind", list(MODULES))
def test_sequences_one_by_one(examples_server, kind, ids):
    with Caller(kind, examples_server) as c:
        sums = {sequence: [] for sequence in ids}
        for i, value in enumerate(VALUES):
            for sequence, sign in zip(ids, (1, -1), strict=True):
                ends = {"sequence_start": i == 0, "sequence_end": i == len(VALUES) - 1}
                result = c.infer("simple_sequence", one_value(c, sign * value), sequence_id=sequence, **ends)
                sums[sequence].append(result.as_numpy("OUTPUT").item())
        assert sums == {ids[0]: SUMS, ids[1]: [-s for s in SUMS]}


@pytest.mark.parametrize("kind", BLOCKING)
def test_the_server_keeps_the_state_of_sequences(examples_server, kind):
    with Caller(kind, examples_server) as c:
        sums = {4001: 100, 4002: 100}
        for i, value in enumerate(VALUES):
            for sequence, sign in zip(sums, (1, -1), strict=True):
                ends = {"sequence_start": i == 0, "sequence_end": i == len(VALUES) - 1}
                inputs = [c.input("INPUT0", np.array([[sign * value]], np.int32), "INT32")]
                result = c.infer("implicit_state", inputs, sequence_id=sequence, **ends)
                assert result.as_numpy("OUTPUT1").item() == sign * value - sums[sequence]
                assert result.as_numpy("OUTPUT0") is None
                sums[sequence] += sign * value


def test_sequences_on_a_stream(examples_server):
    with Caller("grpc", examples_server) as c, Stream(c.client) as stream:
        for i, value in enumerate(VALUES):
            for sequence, sign in ((2001, 1), ("named", -1)):
                stream.send(
                    f"{sequence} {i}", one_value(c, sign * value), model="simple_sequence", sequence_id=sequence,
                    sequence_start=i == 0, sequence_end=i == len(VALUES) - 1,
                )  # fmt: skip
        sums = {}
        for _ in range(2 * len(VALUES)):
            result, error = stream.receive()
            assert error is None, error
            sums[result.get_response().id] = result.as_numpy("OUTPUT").item()
    assert sums == {f"{s} {i}": n * SUMS[i] for i in range(len(VALUES)) for s, n in ((2001, 1), ("named", -1))}


def test_a_sequence_begins_with_its_start(examples_server):
    with Caller("http", examples_server) as c, pytest.raises(InferenceServerException, match="must specify the START flag"):
        c.infer("simple_sequence", one_value(c, 1), sequence_id=3001)


# --- repeat: as many answers as the request has values, none for none ---


@pytest.mark.parametrize("values", [[1, 2, 4, 8], []], ids=["four", "none"])
def test_repeat(examples_server, values):
    with Caller("grpc", examples_server) as c, Stream(c.client) as stream:
        inputs = [
            c.input("IN", np.array(values, np.int32), "INT32"), c.input("DELAY", np.full(len(values), 2, np.uint32), "UINT32"),
            c.input("WAIT", np.array([1], np.uint32), "UINT32"),
        ]  # fmt: skip
        stream.send("repeat", inputs, model="repeat_int32", enable_empty_final_response=True)
        answers = []
        for result in stream.receive_until_final():
            if is_final(result) and not result.get_response().outputs:
                break
            answers.append((result.as_numpy("IDX").item(), result.as_numpy("OUT").item()))
    assert answers == list(enumerate(values))
