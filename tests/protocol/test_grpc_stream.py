# SPDX-License-Identifier: Apache-2.0
"""ModelStreamInfer of a live server, seen by the published client: text, order, errors, cancellation, stop."""

import asyncio
import queue
import re
import signal
import time

import grpc
import pytest
import requests
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from live_server import start_server
from llm_client import Stream, is_final, stream_grpc, tensors, text_of, token_ids, wait_until_idle
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

PROMPT = "The little robot walked to the river"


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
    "missing input": (lambda: tensors(max_tokens=4), r"QUERY is not present"),
    "max_tokens 0": (lambda: tensors(text_input=PROMPT, max_tokens=0), "max_tokens|request_output_len"),
    "negative temperature": (lambda: tensors(text_input=PROMPT, max_tokens=4, temperature=-1.0), "temperature"),
    "NaN temperature": (lambda: tensors(text_input=PROMPT, max_tokens=4, temperature=float("nan")), "temperature"),
    "invalid UTF-8": (lambda: tensors(text_input=b"\xff\xfe", max_tokens=4), "UTF-8"),
    "bytes of no text that are quoted": (
        lambda: tensors(
            text_input=PROMPT, max_tokens=4, guided_decoding_guide_type=b"a\xff", guided_decoding_guide="a"
        ),
        "guided_decoding_guide_type: got 'a\ufffd'",
    ),
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
    values = {"text_input": PROMPT, "max_tokens": 500, "end_id": -1}
    alone = "".join(stream_grpc(client, **values))
    stopping = start_server(tmp_path, server.model_dir, "--exit-timeout-secs=120")  # sanitizers need more than 30
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
        with pytest.raises(InferenceServerException, match="Server exiting") as refused:
            c.is_server_ready()
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
