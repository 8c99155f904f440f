# SPDX-License-Identifier: Apache-2.0
"""The gRPC front end of a live server, seen by the published client; HTTP and `tokenizers` are the second witnesses."""

import asyncio
import json
import queue
import re
import signal
import time

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from google.protobuf import json_format
from live_server import start_server
from llm_client import Stream, is_final, stream_grpc, tensors, text_of, wait_until_idle
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

PROMPT = "The little robot walked to the river"


@pytest.fixture(scope="module", autouse=True)
def needs_grpc(server):
    if server.grpc is None:
        pytest.skip("built without gRPC")


@pytest.fixture
def client(server):
    with triton.InferenceServerClient(server.grpc) as c:
        yield c


# --- health, metadata ---


def test_live_ready_and_models_ready(client):
    assert client.is_server_live() and client.is_server_ready()
    for model in ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble"):
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "1")


@pytest.mark.parametrize("call", ["is_model_ready", "get_model_metadata", "get_model_config"])
def test_unknown_models_and_versions_are_not_found(client, call):
    with pytest.raises(InferenceServerException) as error:
        getattr(client, call)("nosuch")
    assert error.value.status() == "StatusCode.NOT_FOUND"
    assert error.value.message() == "Request for unknown model: 'nosuch' is not found"
    with pytest.raises(InferenceServerException, match="'ensemble' version 9 is not found"):
        getattr(client, call)("ensemble", "9")
    with pytest.raises(InferenceServerException, match="version string 'abc'"):
        getattr(client, call)("ensemble", "abc")


def test_standard_health_check_answers_for_any_service_name(server):
    with grpc.insecure_channel(server.grpc) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"
        assert check(b"\x0a\x03abc") == b"\x08\x01"


@pytest.mark.parametrize(
    "path", ["/grpc.health.v1.Health/Watch", "/inference.Other/ServerLive", "/inference.GRPCInferenceService/Nope"]
)
def test_what_is_not_offered_is_unimplemented(server, path):
    with grpc.insecure_channel(server.grpc) as channel:
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary(path)(b"", timeout=10)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_end_only_their_call(server, client):
    with grpc.insecure_channel(server.grpc) as channel:
        for path in ("ModelReady", "ModelInfer"):
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(f"/inference.GRPCInferenceService/{path}")(b"\x0a\xff\xff", timeout=10)
            assert error.value.code() == grpc.StatusCode.INTERNAL
    assert client.is_server_live()


def test_server_metadata(client):
    metadata = client.get_server_metadata()
    assert metadata.name == "triton"
    assert "statistics" in metadata.extensions


@pytest.mark.parametrize("model", ["preprocessing", "tensorrt_llm", "postprocessing", "ensemble"])
def test_metadata_and_config_say_what_http_says(server, client, model):
    http = requests.get(f"http://{server.http}/v2/models/{model}", timeout=10).json()
    ours = client.get_model_metadata(model)
    assert [ours.name, list(ours.versions), ours.platform] == [http["name"], http["versions"], http["platform"]]
    for kind in ("inputs", "outputs"):
        assert [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in getattr(ours, kind)] == http[kind]

    config = client.get_model_config(model).config
    from_http = json_format.ParseDict(
        requests.get(f"http://{server.http}/v2/models/{model}/config", timeout=10).json(), type(config)()
    )
    assert config == from_http


def test_index_lists_the_four_models(client):
    index = {m.name: (m.version, m.state) for m in client.get_model_repository_index().models}
    for model in ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble"):
        assert index[model] == ("1", "READY")


def test_statistics_count_each_request_once(server, client):
    def success():
        stats = client.get_inference_statistics("preprocessing").model_stats
        assert [(s.name, s.version) for s in stats] == [("preprocessing", "1")]
        return stats[0].inference_stats.success.count

    before = success()
    for _ in range(3):
        client.infer("preprocessing", tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4))
    assert success() == before + 3
    ours = json_format.MessageToDict(client.get_inference_statistics("preprocessing"), preserving_proto_field_name=True)
    http = requests.get(f"http://{server.http}/v2/models/preprocessing/stats", timeout=10).json()
    counted = ours["model_stats"][0]["inference_stats"]["success"]
    assert {k: int(v) for k, v in counted.items()} == http["model_stats"][0]["inference_stats"]["success"]
    assert len(client.get_inference_statistics().model_stats) >= 4


@pytest.mark.parametrize(
    "model, version, text",
    [
        ("nosuch", "", "requested model 'nosuch' is not available"),
        ("ensemble", "9", "requested model version is not available for model 'ensemble'"),
    ],
)
def test_statistics_of_the_unknown_are_invalid_arguments(client, model, version, text):
    with pytest.raises(InferenceServerException) as error:
        client.get_inference_statistics(model, version)
    assert (error.value.status(), error.value.message()) == ("StatusCode.INVALID_ARGUMENT", text)


def test_control_and_shared_memory_are_refused(client):
    for call in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException) as error:
            call("ensemble")
        assert error.value.status() == "StatusCode.UNAVAILABLE"
    with pytest.raises(InferenceServerException) as error:
        client.register_system_shared_memory("r", "/k", 8)
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    assert len(client.get_system_shared_memory_status().regions) == 0


# --- ModelInfer ---


def token_ids(server, text):
    return Tokenizer.from_file(str(server.model_dir / "tokenizer.json")).encode(text).ids


def test_infer_tokenizes_as_the_tokenizers_package(server, client):
    for text in (PROMPT, "Ünïcödé ✓ 你好", "a" * 500):
        result = client.infer("preprocessing", tensors(QUERY=text, REQUEST_OUTPUT_LEN=4), request_id="t")
        assert result.get_response().id == "t"
        assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == token_ids(server, text)


def test_infer_returns_only_requested_outputs(client):
    wanted = [triton.InferRequestedOutput("REQUEST_INPUT_LEN")]
    result = client.infer("preprocessing", tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4), outputs=wanted)
    assert [o.name for o in result.get_response().outputs] == ["REQUEST_INPUT_LEN"]


def test_async_infer(server, client):
    results = queue.Queue()
    for i in range(8):
        client.async_infer(
            "preprocessing", tensors(QUERY=f"{PROMPT} {i}", REQUEST_OUTPUT_LEN=4), request_id=str(i),
            callback=lambda result, error: results.put((result, error)),
        )  # fmt: skip
    for _ in range(8):
        result, error = results.get(timeout=30)
        assert error is None
        text = f"{PROMPT} {result.get_response().id}"
        assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == token_ids(server, text)


def test_typed_contents_equal_raw_contents(server):
    request = service_pb2.ModelInferRequest(model_name="preprocessing")
    query = request.inputs.add(name="QUERY", datatype="BYTES", shape=[1, 1])
    query.contents.bytes_contents.append(PROMPT.encode())
    length = request.inputs.add(name="REQUEST_OUTPUT_LEN", datatype="INT32", shape=[1, 1])
    length.contents.int_contents.append(4)
    with grpc.insecure_channel(server.grpc) as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=service_pb2.ModelInferRequest.SerializeToString,
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        response = infer(request, timeout=30)
        ids = dict(zip((o.name for o in response.outputs), response.raw_output_contents, strict=True))["INPUT_ID"]
        assert np.frombuffer(ids, np.int32).tolist() == token_ids(server, PROMPT)
        request.raw_input_contents.append(b"x")
        with pytest.raises(grpc.RpcError, match="contents field must not be specified"):
            infer(request, timeout=30)


def test_compressed_requests_are_accepted(server, client):
    for algorithm in ("gzip", "deflate"):
        result = client.infer("preprocessing", tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4), compression_algorithm=algorithm)
        assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == token_ids(server, PROMPT)


def test_infer_answers_for_a_decoupled_llm_unless_asked_to_stream(client):
    whole = client.infer("ensemble", tensors(text_input=PROMPT, max_tokens=12), request_id="w")
    assert whole.get_response().id == "w"
    assert text_of(whole) == "".join(stream_grpc(client, text_input=PROMPT, max_tokens=12))
    with pytest.raises(InferenceServerException) as error:
        client.infer("ensemble", tensors(text_input=PROMPT, max_tokens=100, stream=True))
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    assert error.value.message() == "ModelInfer RPC doesn't support models with decoupled transaction policy"


def short(name):
    return [t for t in tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4) if t.name() != name]


@pytest.mark.parametrize(
    "inputs, kwargs, text",
    [
        (short("QUERY"), {}, r"missing required input\(s\) \['QUERY'"),
        ([*short(""), *tensors(text_input="x")], {}, "unexpected inference input 'text_input' for model"),
        (short(""), {"outputs": [triton.InferRequestedOutput("NOPE")]}, "unexpected inference output 'NOPE'"),
        (short(""), {"model_version": "7"}, "'preprocessing' version 7 is not found"),
    ],
    ids=["missing", "unexpected", "output", "version"],
)
def test_bad_requests_get_the_texts_clients_know(client, inputs, kwargs, text):
    with pytest.raises(InferenceServerException, match=text):
        client.infer("preprocessing", inputs, **kwargs)
    assert client.is_server_ready()


def test_wrong_datatype_shape_and_size_are_named(client):
    wrong = triton.InferInput("REQUEST_OUTPUT_LEN", [1, 1], "FP32")
    wrong.set_data_from_numpy(np.ones((1, 1), np.float32))
    with pytest.raises(InferenceServerException, match="data-type is 'FP32', but model 'preprocessing' expects 'INT32'"):
        client.infer("preprocessing", [*short("REQUEST_OUTPUT_LEN"), wrong])
    flat = triton.InferInput("REQUEST_OUTPUT_LEN", [1, 1, 1], "INT32")
    flat.set_data_from_numpy(np.ones((1, 1, 1), np.int32))
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'REQUEST_OUTPUT_LEN'"):
        client.infer("preprocessing", [*short("REQUEST_OUTPUT_LEN"), flat])
    request = service_pb2.ModelInferRequest(model_name="preprocessing", raw_input_contents=[b"\1\0\0\0a", b"abc"])
    request.inputs.add(name="QUERY", datatype="BYTES", shape=[1, 1])
    request.inputs.add(name="REQUEST_OUTPUT_LEN", datatype="INT32", shape=[1, 1])
    with pytest.raises(grpc.RpcError, match="Expected 4, got 3"):
        client._client_stub.ModelInfer(request, timeout=30)


# --- ModelStreamInfer ---


def test_streamed_chunks_concatenate_to_the_whole_text(client):
    whole = stream_grpc(client, stream=False, text_input=PROMPT, max_tokens=24)
    assert len(whole) == 1
    chunks = stream_grpc(client, stream=True, text_input=PROMPT, max_tokens=24)
    assert len(chunks) > 1
    assert "".join(chunks) == whole[0]


def test_stream_text_equals_http_text(server, client):
    body = {"text_input": PROMPT, "max_tokens": 16, "bad_words": "", "stop_words": ""}
    http = requests.post(f"http://{server.http}/v2/models/ensemble/generate", json=body, timeout=60).json()
    assert "".join(stream_grpc(client, text_input=PROMPT, max_tokens=16)) == http["text_output"]


def test_responses_carry_id_model_and_final_mark(client):
    with Stream(client) as s:
        s.send("r-1", tensors(text_input=PROMPT, max_tokens=4, stream=True), enable_empty_final_response=True)
        results = s.receive_until_final()
    for result in results:
        response = result.get_response()
        assert (response.id, response.model_name) == ("r-1", "ensemble")
    assert [is_final(r) for r in results] == [False] * (len(results) - 1) + [True]


def test_empty_final_response_is_sent_only_when_asked_for(client):
    asked = generate_elements(client, enable_empty_final_response=True)
    silent = generate_elements(client)
    assert all(r.get_response().outputs for r in silent)
    assert [text_of(r) for r in asked if r.get_response().outputs] == [text_of(r) for r in silent]


def generate_elements(client, **kwargs):
    """Everything that a stream of one request carries; its end is seen by the answer to a bad second request."""
    with Stream(client) as s:
        s.send("r", tensors(text_input=PROMPT, max_tokens=6, stream=True), **kwargs)
        results = [s.receive()[0]]
        while len(results) < 6 and not is_final(results[-1]):
            results.append(s.receive()[0])
        s.send("bad", tensors(text_input=PROMPT), model="nosuch")
        while (element := s.receive())[1] is None:
            results.append(element[0])
    return results


def test_many_requests_share_a_stream_and_keep_their_texts(client):
    prompts = {f"p{i}": f"{PROMPT} number {i}" for i in range(12)}
    alone = {rid: "".join(stream_grpc(client, text_input=p, max_tokens=8 + i)) for i, (rid, p) in enumerate(prompts.items())}
    texts, open_requests = dict.fromkeys(prompts, ""), set(prompts)
    with Stream(client) as s:
        for i, (rid, prompt) in enumerate(prompts.items()):
            s.send(rid, tensors(text_input=prompt, max_tokens=8 + i, stream=True), enable_empty_final_response=True)
        while open_requests:
            result, error = s.receive()
            assert error is None, error
            rid = result.get_response().id
            assert rid in open_requests
            if result.get_response().outputs:
                texts[rid] += text_of(result)
            if is_final(result):
                open_requests.remove(rid)
    assert texts == alone


def test_plain_models_answer_in_request_order_on_a_stream(server, client):
    texts = [PROMPT * n for n in (400, 1, 50, 2)]
    with Stream(client) as s:
        for i, text in enumerate(texts):
            s.send(str(i), tensors(QUERY=text, REQUEST_OUTPUT_LEN=4), model="preprocessing")
        for i, text in enumerate(texts):
            result, error = s.receive()
            assert error is None
            assert result.get_response().id == str(i)
            assert is_final(result)
            assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == token_ids(server, text)


BAD_REQUESTS = {
    "missing input": (lambda: tensors(text_input=PROMPT), r"max_tokens"),
    "max_tokens 0": (lambda: tensors(text_input=PROMPT, max_tokens=0), "max_tokens|request_output_len"),
    "negative temperature": (lambda: tensors(text_input=PROMPT, max_tokens=4, temperature=-1.0), "temperature"),
    "NaN temperature": (lambda: tensors(text_input=PROMPT, max_tokens=4, temperature=float("nan")), "temperature"),
    "invalid UTF-8": (lambda: tensors(text_input=b"\xff\xfe", max_tokens=4), "UTF-8"),
    "too long": (lambda: tensors(text_input=PROMPT * 4000, max_tokens=4), "length|tokens|long"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_bad_requests_are_elements_and_the_stream_goes_on(client, name):
    inputs, text = BAD_REQUESTS[name]
    good = "".join(stream_grpc(client, text_input=PROMPT, max_tokens=5))
    with Stream(client) as s:
        s.send("bad", inputs(), enable_empty_final_response=True)
        result, error = s.receive()
        assert result is None
        assert error.status() is None or "OK" not in error.status()
        assert re.search(text, error.message()), error.message()
        s.send("good", tensors(text_input=PROMPT, max_tokens=5, stream=True), enable_empty_final_response=True)
        while (element := s.receive())[1] is not None:
            pass  # a failed execution may be followed by the mark of its end
        results = [element[0]]
        while not (is_final(results[-1]) and results[-1].get_response().id == "good"):
            results.append(s.receive()[0])
        texts = [text_of(r) for r in results if r.get_response().id == "good" and r.get_response().outputs]
        assert "".join(texts) == good


def test_unknown_model_is_an_element_with_the_request_id(server):
    request = service_pb2.ModelInferRequest(model_name="nosuch", id="u1")
    with grpc.insecure_channel(server.grpc) as channel:
        stream = stream_stub(channel)(iter([request]), timeout=30)
        elements = list(stream)
        assert stream.code() == grpc.StatusCode.OK
    assert [e.error_message for e in elements] == ["Request for unknown model: 'nosuch' is not found"]
    assert elements[0].infer_response == service_pb2.ModelInferResponse(id="u1")


def stream_stub(channel):
    return channel.stream_stream(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        request_serializer=service_pb2.ModelInferRequest.SerializeToString,
        response_deserializer=service_pb2.ModelStreamInferResponse.FromString,
    )


def raw_request(request_id, **values):
    request = service_pb2.ModelInferRequest(model_name="ensemble", id=request_id)
    for t in tensors(**values):
        request.inputs.append(t._get_tensor())
        request.raw_input_contents.append(t._get_content())
    return request


def test_half_close_lets_requests_in_progress_finish(server, client):
    alone = "".join(stream_grpc(client, text_input=PROMPT, max_tokens=20))
    with grpc.insecure_channel(server.grpc) as channel:
        requests_ = iter([raw_request(str(i), text_input=PROMPT, max_tokens=20, stream=True) for i in range(3)])
        stream = stream_stub(channel)(requests_, timeout=60)
        texts = {"0": "", "1": "", "2": ""}
        for element in stream:
            assert not element.error_message
            response = element.infer_response
            names = [o.name for o in response.outputs]
            texts[response.id] += response.raw_output_contents[names.index("text_output")][4:].decode()
        assert stream.code() == grpc.StatusCode.OK
    assert texts == {"0": alone, "1": alone, "2": alone}


def test_strict_stream_ends_with_the_status_of_an_execution(server):
    """Errors found before execution stay elements; an execution that fails ends the stream."""
    with grpc.insecure_channel(server.grpc) as channel:
        unknown = service_pb2.ModelInferRequest(model_name="nosuch", id="u1")
        stream = stream_stub(channel)(iter([unknown]), timeout=30, metadata=[("triton_grpc_error", "true")])
        assert [e.error_message != "" for e in stream] == [True]
        assert stream.code() == grpc.StatusCode.OK
        bad = raw_request("b", text_input=PROMPT, max_tokens=0)
        stream = stream_stub(channel)(iter([bad]), timeout=30, metadata=[("triton_grpc_error", "true")])
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# --- cancellation ---


def test_cancel_of_a_stream_frees_its_blocks(server, client):
    with Stream(client) as s:
        for i in range(4):
            s.send(str(i), tensors(text_input=PROMPT, max_tokens=200, stream=True, end_id=-1))
        assert s.receive()[1] is None
        client.stop_stream(cancel_requests=True)
    wait_until_idle(server)
    assert stream_grpc(client, text_input=PROMPT, max_tokens=3)


def test_deadline_of_a_stream_frees_its_blocks(server):
    with grpc.insecure_channel(server.grpc) as channel:
        request = raw_request("d", text_input=PROMPT, max_tokens=220, stream=True, end_id=-1)
        keep_open = queue.Queue()
        keep_open.put(request)
        stream = stream_stub(channel)(iter(keep_open.get, None), timeout=0.5)
        with pytest.raises(grpc.RpcError) as error:
            for _ in stream:
                pass
        keep_open.put(None)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until_idle(server)


def test_disconnect_frees_blocks(server):
    channel = grpc.insecure_channel(server.grpc)
    keep_open = queue.Queue()
    keep_open.put(raw_request("x", text_input=PROMPT, max_tokens=200, stream=True, end_id=-1))
    stream = stream_stub(channel)(iter(keep_open.get, None), timeout=30)
    next(iter(stream))
    channel.close()
    keep_open.put(None)
    wait_until_idle(server)


def test_sigterm_lets_a_stream_finish_and_refuses_new_requests(server, client, tmp_path):
    values = {"text_input": PROMPT, "max_tokens": 900, "end_id": -1}
    alone = "".join(stream_grpc(client, **values))
    stopping = start_server(tmp_path)
    with triton.InferenceServerClient(stopping.grpc) as c, Stream(c) as s:
        s.send("r", tensors(stream=True, **values), enable_empty_final_response=True)
        first, error = s.receive()
        assert error is None, error
        stopping.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        with pytest.raises(InferenceServerException) as refused:
            while time.monotonic() < deadline:
                c.infer("preprocessing", tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4))
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        results = [first, *s.receive_until_final()]
    assert "".join(text_of(r) for r in results if r.get_response().outputs) == alone
    assert stopping.process.wait(timeout=30) == 0, stopping.log.read_text()[-4000:]


# --- the asyncio client ---


def test_aio_client_streams_and_infers(server):
    async def run():
        async with triton_aio.InferenceServerClient(server.grpc) as client:
            assert await client.is_server_ready()
            result = await client.infer("preprocessing", tensors(QUERY=PROMPT, REQUEST_OUTPUT_LEN=4))
            assert result.as_numpy("INPUT_ID").reshape(-1).tolist() == token_ids(server, PROMPT)
            with pytest.raises(InferenceServerException, match="is not found"):
                await client.get_model_metadata("nosuch")

            async def requests_():
                for i in range(3):
                    yield {
                        "model_name": "ensemble", "request_id": str(i), "enable_empty_final_response": True,
                        "inputs": tensors(text_input=PROMPT, max_tokens=12, stream=True),
                    }  # fmt: skip

            texts, finals = {"0": "", "1": "", "2": ""}, 0
            async for result, error in client.stream_infer(requests_()):
                assert error is None, error
                if result.get_response().outputs:
                    texts[result.get_response().id] += text_of(result)
                finals += is_final(result)
                if finals == 3:
                    break
            return texts

    texts = asyncio.run(run())
    assert len(set(texts.values())) == 1 and texts["0"]


def test_config_as_json_has_what_load_generators_index(client):
    config = json.loads(json_format.MessageToJson(client.get_model_config("ensemble"), preserving_proto_field_name=True))
    assert config["config"]["model_transaction_policy"]["decoupled"] is True
    assert [s["model_name"] for s in config["config"]["ensemble_scheduling"]["step"]] == [
        "preprocessing", "tensorrt_llm", "postprocessing",
    ]  # fmt: skip
