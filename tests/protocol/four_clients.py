# SPDX-License-Identifier: Apache-2.0
"""The published clients of HTTP and gRPC, blocking and asyncio, called in one way."""

import asyncio
import inspect

import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

MODULES = {
    "http": tritonclient.http, "grpc": tritonclient.grpc, "http-aio": tritonclient.http.aio, "grpc-aio": tritonclient.grpc.aio,
}  # fmt: skip


def calls_of(kind):
    """The names of everything that the client offers."""
    return {name for name, _ in inspect.getmembers(MODULES[kind].InferenceServerClient, inspect.isfunction) if name[0] != "_"}


class Caller:
    """A client whose calls are run to their end; `with` closes it."""

    def __init__(self, kind, server, **options):
        self.is_grpc, self.is_aio = kind.startswith("grpc"), kind.endswith("aio")
        self.module = MODULES[kind]
        self.loop = asyncio.new_event_loop()
        self.client = self.finish(self._make(server.grpc if self.is_grpc else server.http, options))

    async def _make(self, address, options):  # in the loop, as the aio clients demand
        return self.module.InferenceServerClient(address, **options)

    def finish(self, result):
        return self.loop.run_until_complete(result) if inspect.isawaitable(result) else result

    def __getattr__(self, name):
        method = getattr(self.client, name)
        return lambda *args, **kwargs: self.finish(method(*args, **kwargs))

    def json(self, name, *args):
        """The answer as a dict, whatever the client makes of it."""
        return getattr(self, name)(*args, **({"as_json": True} if self.is_grpc else {}))

    def input(self, name, array, datatype):
        tensor = self.module.InferInput(name, list(array.shape), datatype)
        tensor.set_data_from_numpy(array)
        return tensor

    def output(self, name, **kwargs):
        return self.module.InferRequestedOutput(name, **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.finish(self.client.close())
        self.loop.close()
