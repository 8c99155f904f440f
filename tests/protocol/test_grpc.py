# SPDX-License-Identifier: Apache-2.0
"""The gRPC front end of a live server, seen by the published client; HTTP and `tokenizers` are the second witnesses."""

import json
import queue

import grpc
import numpy as np
import pytest
import requests
import tritonclient.grpc as triton
from google.protobuf import json_format
from llm_client import stream_grpc, tensors, text_of, token_ids
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

PROMPT = "The little robot walked to the river"


# --- health, metadata ---


def test_live_ready_and_models_ready(client):
    assert client.is_server_live() and client.is_server_ready()
    for model in ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble"):
        assert client.is_model_ready(model)
        assert client.is_model_ready(model, "1")


@pytest.mark.parametrize("call", ["get_model_metadata", "get_model_config"])
def test_unknown_models_and_versions_are_not_found(client, call):
    with pytest.raises(InferenceServerException) as error:
        getattr(client, call)("nosuch")
    assert error.value.status() == "StatusCode.NOT_FOUND"
    assert error.value.message() == "Request for unknown model: 'nosuch' is not found"
    with pytest.raises(InferenceServerException, match="'ensemble' version 9 is not found"):
        getattr(client, call)("ensemble", "9")
    with pytest.raises(InferenceServerException, match="version string 'abc'"):
        getattr(client, call)("ensemble", "abc")


def test_unknown_models_and_versions_are_not_ready(client):
    assert not client.is_model_ready("nosuch")
    assert not client.is_model_ready("ensemble", "9")
    with pytest.raises(InferenceServerException, match="version string 'abc'"):
        client.is_model_ready("ensemble", "abc")


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
        ([], {}, r"missing required input\(s\) \['REQUEST_OUTPUT_LEN'"),
        (short("QUERY"), {}, "QUERY is not present in the request"),
        ([*short(""), *tensors(text_input="x")], {}, "unexpected inference input 'text_input' for model"),
        (short(""), {"outputs": [triton.InferRequestedOutput("NOPE")]}, "unexpected inference output 'NOPE'"),
        (short(""), {"model_version": "7"}, "'preprocessing' version 7 is not found"),
    ],
    ids=["none", "missing", "unexpected", "output", "version"],
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


@pytest.mark.parametrize("text", [b"\xff\xfe", b"abc\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
@pytest.mark.parametrize("is_raw", [True, False])
def test_invalid_utf8_is_refused(client, text, is_raw):
    """In both forms of a tensor; bytes of protobuf may be anything."""
    request = service_pb2.ModelInferRequest(model_name="ensemble")
    prompt = request.inputs.add(name="text_input", datatype="BYTES", shape=[1, 1])
    count = request.inputs.add(name="max_tokens", datatype="INT32", shape=[1, 1])
    if is_raw:
        request.raw_input_contents.extend([len(text).to_bytes(4, "little") + text, (4).to_bytes(4, "little")])
    else:
        prompt.contents.bytes_contents.append(text)
        count.contents.int_contents.append(4)
    with pytest.raises(grpc.RpcError) as error:
        client._client_stub.ModelInfer(request, timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "text_input" in error.value.details() and "UTF-8" in error.value.details()
    assert client.is_server_ready()


def test_config_as_json_has_what_load_generators_index(client):
    config = json.loads(json_format.MessageToJson(client.get_model_config("ensemble"), preserving_proto_field_name=True))
    assert config["config"]["model_transaction_policy"]["decoupled"] is True
    assert [s["model_name"] for s in config["config"]["ensemble_scheduling"]["step"]] == [
        "preprocessing", "tensorrt_llm", "postprocessing",
    ]  # fmt: skip
