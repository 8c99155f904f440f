# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, each of which knows how its request ended: the other side of the server's counters.

A client that leaves (cancel, disconnect, deadline) does so only once it knows that the server has taken its request: it got
a first response, or the server has answered a broken request that was sent behind it on the same stream. Then the server
must count exactly one failure. Where a deadline comes before that knowledge, the request is counted as `unknown`: the
server may have seen it or not.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import random
import struct

import grpc
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2, service_pb2_grpc

NUM_CHANNELS = 16
VOCAB_SIZE = 2000  # of random prompts; below the demo model's
MAX_SEQ_LEN = 1024  # of the demo model
LONG = 900  # tokens, more than most clients wait for
WORDS = "the a robot fox river garden old small walked found who lives Question: Answer: 12+30".split()  # noqa: SIM905
QUEUE_FULL = "Maximum queue size"
NOT_SENT = "Internal error from Core"
FULL_BACKOFF_S = 1.0  # mean
REQUEST_TIMEOUT_S = 300


class ProtocolError(Exception):
    """The server answered in a way that no client could understand."""


@dataclasses.dataclass
class Tally:
    """How requests ended, by model; sums over successful ones."""

    ends: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # (model, end)
    kinds: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # (kind, end)
    prompt_tokens: int = 0
    output_tokens: int = 0
    tokens_of_others: int = 0  # seen by clients that left
    ensemble_responses: int = 0
    problems: list = dataclasses.field(default_factory=list)

    def add(self, kind, model, end):
        self.ends[model, end] += 1
        self.kinds[kind, end] += 1

    def success(self, kind, model, num_prompt_tokens, num_output_tokens, num_responses):
        self.add(kind, model, "success")
        self.prompt_tokens += num_prompt_tokens
        self.output_tokens += num_output_tokens
        if model == "ensemble":
            self.ensemble_responses += num_responses

    def refused(self, kind, model, message):
        """An error answer; the reason under which the server must have counted it."""
        if QUEUE_FULL in message:
            self.add(kind, model, "rejected")
        else:
            self.problems.append(f"{kind}: unexpected error: {message}")
            self.add(kind, model, "backend")

    def total(self, *ends, model=None):
        return sum(n for (m, end), n in self.ends.items() if end in ends and model in (None, m))


def ensemble_inputs(text, max_tokens, stream):
    return {"text_input": text, "max_tokens": max_tokens, "stream": stream, "end_id": -1}


def pack(name, shape, value):
    """A tensor of the request and its bytes."""
    tensor = service_pb2.ModelInferRequest.InferInputTensor(name=name, shape=shape)
    if isinstance(value, str):
        tensor.datatype, raw = "BYTES", struct.pack("<I", len(value.encode())) + value.encode()
    elif isinstance(value, bool):
        tensor.datatype, raw = "BOOL", struct.pack("?", value)
    else:
        values = value if isinstance(value, list) else [value]
        tensor.datatype, raw = "INT32", struct.pack(f"<{len(values)}i", *values)
    return tensor, raw


def infer_request(model, request_id, **inputs):
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name, value in inputs.items():
        tensor, raw = pack(name, [1, len(value) if isinstance(value, list) else 1], value)
        request.inputs.append(tensor)
        request.raw_input_contents.append(raw)
    return request


def llm_inputs(ids, max_tokens, streaming):
    return {
        "input_ids": ids, "input_lengths": len(ids), "request_output_len": max_tokens, "streaming": streaming, "end_id": -1,
    }  # fmt: skip


def output_ids(response):
    """How many ids a response of the LLM carries: of its only sequence."""
    for i, output in enumerate(response.outputs):
        if output.name == "sequence_length":
            return struct.unpack("<i", response.raw_output_contents[i])[0]
    return 0


class HttpStream:
    """One request of HTTP/1.1 on a connection of its own."""

    @classmethod
    async def post(cls, address, path, values):
        self = cls()
        host, port = address.split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(values).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        await self.writer.drain()
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split(" ")[1])
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if line)}
        self.length = int(headers["content-length"]) if "content-length" in headers else None
        return self

    async def body(self):
        if self.length is not None:
            return await self.reader.readexactly(self.length)
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self):
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def events(self):
        pending = b""
        async for chunk in self.chunks():
            pending += chunk
            while b"\n\n" in pending:
                event, pending = pending.split(b"\n\n", 1)
                yield json.loads(event.removeprefix(b"data: "))
        if pending:
            raise ProtocolError(f"the stream ended inside an event: {pending!r}")

    def close(self):
        self.writer.close()


class Clients:
    """The ways to use a server, one method each; every call is one request that ends in the tally."""

    def __init__(self, http, grpc_address, tokenizer_file, seed):
        self.http, self.tally, self.rng = http, Tally(), random.Random(seed)
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.num_started = 0
        self.channels = [
            grpc.aio.insecure_channel(grpc_address, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in range(NUM_CHANNELS if grpc_address else 0)
        ]
        self.stubs = [service_pb2_grpc.GRPCInferenceServiceStub(channel) for channel in self.channels]

    async def close(self):
        for channel in self.channels:
            await channel.close()

    def kinds(self):
        """With how often each is chosen."""
        kinds = {self.generate: 3, self.generate_stream: 4, self.drop_http: 2, self.too_long: 1, self.invalid: 1}
        if self.channels:
            kinds |= {self.infer: 3, self.stream_ids: 3, self.stream_text: 3, self.cancel_running: 2}
            kinds |= {self.cancel_anywhere: 2, self.deadline: 2, self.stop_tensor: 1}
        return kinds

    async def run(self, num_clients, duration_s, max_duration_s=0, is_enough=lambda _: True):
        """For `duration_s`; longer, up to `max_duration_s`, while the tally is not enough."""
        now = asyncio.get_running_loop().time
        start = now()

        def goes_on():
            return now() < start + duration_s or (now() < start + max_duration_s and not is_enough(self.tally))

        await asyncio.gather(*(self.client(goes_on, i) for i in range(num_clients)))
        return self.tally

    async def client(self, goes_on, index):
        kinds = self.kinds()
        kind = list(kinds)[index % len(kinds)]  # each occurs, however short the time
        while goes_on():
            self.num_started += 1
            num_full = self.tally.total("rejected")
            try:
                await asyncio.wait_for(kind(kind.__name__, str(self.num_started)), REQUEST_TIMEOUT_S)
            except Exception as e:  # the verdict is the caller's
                self.tally.problems.append(f"{kind.__name__}: {e!r}")
            if self.tally.total("rejected") > num_full:
                await asyncio.sleep(self.rng.uniform(0, 2 * FULL_BACKOFF_S))
            kind = self.rng.choices(list(kinds), list(kinds.values()))[0]

    # --- what requests are made of ---

    def text(self):
        """A prompt and its length in tokens."""
        text = " ".join(self.rng.choice(WORDS) for _ in range(self.rng.choice([1, 4, 20, 60])))
        text += f" {self.rng.randrange(10**6)}"
        return text, len(self.tokenizer.encode(text).ids)

    def ids(self):
        return [self.rng.randrange(VOCAB_SIZE) for _ in range(self.rng.choice([1, 5, 40, 130]))]

    def num_tokens(self):
        return self.rng.choice([1, 4, 12, 24])

    def stub(self):
        return self.rng.choice(self.stubs)

    # --- those that stay to the end ---

    async def generate(self, kind, _):
        text, num_prompt = self.text()
        max_tokens = self.num_tokens()
        path = "/v2/models/ensemble/generate"
        call = await HttpStream.post(self.http, path, ensemble_inputs(text, max_tokens, stream=False))
        answer = json.loads(await call.body())
        call.close()
        if call.status == 200:
            self.tally.success(kind, "ensemble", num_prompt, max_tokens, num_responses=1)
        else:
            self.tally.refused(kind, "ensemble", answer["error"])

    async def generate_stream(self, kind, _, num_events=None):
        """With `num_events`, leaves after as many."""
        text, num_prompt = self.text()
        max_tokens = self.num_tokens() if num_events is None else LONG
        path = "/v2/models/ensemble/generate_stream"
        call = await HttpStream.post(self.http, path, ensemble_inputs(text, max_tokens, stream=True))
        if call.status != 200:
            body = (await call.body()).removeprefix(b"data: ")  # an event where the model itself refused
            self.tally.refused(kind, "ensemble", json.loads(body)["error"])
            return call.close()
        num_seen = 0
        async for event in call.events():
            if "error" in event:
                self.tally.refused(kind, "ensemble", event["error"])
                return call.close()
            num_seen += 1
            if num_seen == num_events:
                break
        call.close()
        if num_seen == num_events:
            self.tally.add(kind, "ensemble", "canceled")
        else:
            self.tally.success(kind, "ensemble", num_prompt, max_tokens, num_seen)

    async def infer(self, kind, request_id):
        ids, max_tokens = self.ids(), self.num_tokens()
        request = infer_request("tensorrt_llm", request_id, **llm_inputs(ids, max_tokens, streaming=False))
        try:
            response = await self.stub().ModelInfer(request)
        except grpc.aio.AioRpcError as e:
            return self.tally.refused(kind, "tensorrt_llm", e.details())
        num_output = output_ids(response)
        if num_output != max_tokens:
            self.tally.problems.append(f"{kind}: {num_output} ids for {max_tokens}")
        return self.tally.success(kind, "tensorrt_llm", len(ids), num_output, num_responses=1)

    async def stream_ids(self, kind, request_id):
        ids, max_tokens = self.ids(), self.num_tokens()
        request = infer_request("tensorrt_llm", request_id, **llm_inputs(ids, max_tokens, streaming=True))
        end = await self.read_stream([request], request_id)
        self.count_stream(kind, "tensorrt_llm", end, len(ids), max_tokens)

    async def stream_text(self, kind, request_id):
        text, num_prompt = self.text()
        max_tokens = self.num_tokens()
        request = infer_request("ensemble", request_id, **ensemble_inputs(text, max_tokens, stream=True))
        end = await self.read_stream([request], request_id)
        self.count_stream(kind, "ensemble", end, num_prompt, max_tokens)

    # --- those that leave ---

    async def drop_http(self, kind, request_id):
        await self.generate_stream(kind, request_id, num_events=self.rng.choice([1, 2, 5]))

    def long_request(self, request_id):
        """The model, the request and the length of its prompt, which counts where the server was faster than the client left."""
        model = self.rng.choice(["ensemble", "tensorrt_llm"])
        if model == "ensemble":
            text, num_prompt = self.text()
            return model, infer_request(model, request_id, **ensemble_inputs(text, LONG, stream=True)), num_prompt
        ids = self.ids()[:40]
        return model, infer_request(model, request_id, **llm_inputs(ids, LONG, streaming=True)), len(ids)

    async def cancel_running(self, kind, request_id):
        model, request, num_prompt = self.long_request(request_id)
        end = await self.read_stream([request], request_id, num_responses=self.rng.choice([1, 2, 6]))
        self.count_stream(kind, model, end, num_prompt, LONG)

    async def cancel_anywhere(self, kind, request_id):
        """Also while it waits in the queue."""
        model, request, num_prompt = self.long_request(request_id)
        end = await self.read_stream([request, self.broken_request()], request_id, until_accepted=True)
        self.count_stream(kind, model, end, num_prompt, LONG)

    async def deadline(self, kind, request_id):
        model, request, num_prompt = self.long_request(request_id)
        timeout_s = self.rng.uniform(0.1, 1.5)
        end = await self.read_stream([request, self.broken_request()], request_id, timeout_s=timeout_s)
        self.count_stream(kind, model, end, num_prompt, LONG)

    async def stop_tensor(self, kind, request_id):
        """The request ends like a successful one, with what it had."""
        ids = self.ids()[:40]
        request = infer_request("tensorrt_llm", "stop" + request_id, **llm_inputs(ids, LONG, streaming=True))
        stop = infer_request("tensorrt_llm", "stop" + request_id, **llm_inputs(ids, LONG, streaming=True), stop=True)
        end = await self.read_stream([request], "stop" + request_id, stop=stop)
        self.count_stream(kind, "tensorrt_llm", end, len(ids))

    # --- those that should not have come ---

    async def too_long(self, kind, _):
        text = "the " * (2 * MAX_SEQ_LEN)
        call = await HttpStream.post(self.http, "/v2/models/ensemble/generate", ensemble_inputs(text, 1, stream=False))
        answer = json.loads(await call.body())
        call.close()
        if call.status == 200 or "error" not in answer:
            self.tally.problems.append(f"{kind}: was answered")
        self.tally.add(kind, "ensemble", "backend")

    async def invalid(self, kind, _):
        """Refused before a model sees it; Triton counts no such request."""
        call = await HttpStream.post(self.http, "/v2/models/ensemble/generate", {"text_input": "a", "max_tokens": "four"})
        await call.body()
        call.close()
        if call.status == 200:
            self.tally.problems.append(f"{kind}: was answered")
        self.tally.add(kind, "ensemble", "not counted")

    @staticmethod
    def broken_request():
        return infer_request("tensorrt_llm", "broken", input_ids=[1])

    # --- ModelStreamInfer ---

    async def read_stream(self, requests, request_id, num_responses=None, until_accepted=False, timeout_s=None, stop=None):
        """Reads what `requests` yield until the first of them has ended.

        Leaves after `num_responses`, or once it is known to be accepted; `stop` is sent after the first response.
        """
        end = StreamEnd(num_finals_left=1 if stop is None else 2)  # a stop is acknowledged under the same id
        to_send = asyncio.Queue()
        for request in requests:
            to_send.put_nowait(request)

        async def send():
            while request := await to_send.get():
                yield request

        call = self.stub().ModelStreamInfer(send(), timeout=timeout_s)
        try:
            async for element in call:
                if not end.take(element, request_id):
                    end.is_accepted = True  # the answer to the broken one behind it
                if end.num_responses == 1 and stop is not None:
                    to_send.put_nowait(stop)
                    stop = None
                left = end.num_responses == num_responses or (until_accepted and end.is_accepted)
                if left and not end.is_over:
                    end.is_canceled = True
                    call.cancel()
                    break
                if end.is_over and (len(requests) == 1 or end.is_accepted):
                    to_send.put_nowait(None)
        except asyncio.CancelledError:
            # grpc.aio says so, too, when a call ends otherwise while a message is being sent.
            if asyncio.current_task().cancelling() > 0:
                raise
            if not end.is_canceled:
                code = await call.code()
                if timeout_s is None or code != grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise RuntimeError(f"the stream ended: {code}, {await call.details()}") from None
                end.is_canceled = not end.is_over
        except grpc.aio.AioRpcError as e:
            # A deadline that comes while a message is being sent is reported as the client's own failure to send.
            if timeout_s is None or (e.code() != grpc.StatusCode.DEADLINE_EXCEEDED and e.details() != NOT_SENT):
                raise
            end.is_canceled = not end.is_over
        to_send.put_nowait(None)
        if end.is_canceled:
            with contextlib.suppress(asyncio.CancelledError):
                await call.code()
        return end

    def count_stream(self, kind, model, end, num_prompt_tokens=0, max_tokens=None):
        if end.error is not None:
            return self.tally.refused(kind, model, end.error)
        if end.is_canceled:
            self.tally.tokens_of_others += end.num_ids
            known = end.is_accepted or end.num_responses > 0
            return self.tally.add(kind, model, "canceled" if known else "unknown")
        if not end.is_over:
            return self.tally.problems.append(f"{kind}: the stream ended without a final response")
        num_ids = end.num_ids if model == "tensorrt_llm" else max_tokens
        if max_tokens is not None and num_ids != max_tokens:
            self.tally.problems.append(f"{kind}: {num_ids} ids for {max_tokens}")
        return self.tally.success(kind, model, num_prompt_tokens, num_ids or 0, end.num_with_outputs)


@dataclasses.dataclass
class StreamEnd:
    """What came for one request of a stream."""

    num_finals_left: int = 1
    num_responses: int = 0
    num_with_outputs: int = 0
    num_ids: int = 0
    error: str | None = None
    is_over: bool = False
    is_accepted: bool = False
    is_canceled: bool = False

    def take(self, element, request_id):
        """False: it is another request's."""
        response = element.infer_response
        if response.id != request_id:
            return False
        if element.error_message:
            if self.is_over:
                raise ProtocolError("two ends of one request")
            self.error, self.is_over = element.error_message, True
            return True
        if self.is_over:
            raise ProtocolError("a response after the final one")
        self.num_responses += 1
        self.num_with_outputs += len(response.outputs) > 0
        self.num_ids += output_ids(response) if response.model_name == "tensorrt_llm" else 0
        self.num_finals_left -= response.parameters["triton_final_response"].bool_param
        self.is_over = self.num_finals_left == 0
        return True
