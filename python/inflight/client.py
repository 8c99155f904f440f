# SPDX-License-Identifier: Apache-2.0
"""Asks a server over HTTP: the extension `generate` of KServe's protocol."""

from __future__ import annotations

import http.client
import ipaddress
import json
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


class InflightError(Exception):
    """What the server refused or could not do. `status` is that of HTTP; 0: the server could not be asked."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Answer:
    """A response: the text, or the next piece of it; `outputs` is all that the server sent, by name."""

    text: str
    outputs: dict[str, Any] = field(default_factory=dict)


class Client:
    """Threads may share one: each call has a connection of its own. What a server says of names that it does not know is a
    UserWarning."""

    def __init__(self, url: str = "http://127.0.0.1:8000", *, api_key: str | None = None, timeout: float = 600.0):
        """`url` without a scheme is http; `timeout` in seconds is for a connection, and for each wait for bytes."""
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self.timeout = timeout
        # Proxies of the environment are for other machines.
        proxies = urllib.request.ProxyHandler({}) if _is_this_machine(self.url) else urllib.request.ProxyHandler()
        self._opener = urllib.request.build_opener(proxies)
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def is_ready(self) -> bool:
        try:
            with self._open("/v2/health/ready"):
                return True
        except InflightError:
            return False

    def models(self) -> list[str]:
        """Names of the models that are ready."""
        return [entry["name"] for entry in self._ask("/v2/repository/index", {"ready": True})]

    def generate(
        self, text: str, *, max_tokens: int = 64, model: str = "ensemble", **parameters: Any
    ) -> Answer:
        """The whole answer. `parameters` are the model's inputs by name: temperature=0.7, top_p=0.9, stop_words=[...]."""
        body = {"text_input": text, "max_tokens": max_tokens, **parameters}
        return _answer(self._ask(self._path(model, "generate"), body))

    def stream(
        self, text: str, *, max_tokens: int = 64, model: str = "ensemble", **parameters: Any
    ) -> Iterator[Answer]:
        """Pieces as they come; together their texts are the answer. An iterator that is closed ends the request."""
        body = {"text_input": text, "max_tokens": max_tokens, "stream": True, **parameters}
        with self._open(self._path(model, "generate_stream"), body) as response:
            try:
                for line in response:
                    if line.startswith(b"data:"):
                        yield _answer(json.loads(line[len(b"data:") :]))
            except (OSError, ValueError, http.client.HTTPException) as broken:
                raise InflightError(0, f"{self.url}: the stream broke off: {broken}") from broken

    def _path(self, model: str, verb: str) -> str:
        return f"/v2/models/{urllib.parse.quote(model, safe='')}/{verb}"

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        with self._open(path, body) as response:
            try:
                return json.load(response)
            except (OSError, ValueError, http.client.HTTPException) as broken:
                raise InflightError(0, f"{self.url}: no answer of an Inflight server: {broken}") from broken

    def _open(self, path: str, body: dict[str, Any] | None = None) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=self._headers)
        try:
            response = self._opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as refused:
            raise InflightError(refused.code, _message(refused.read()) or str(refused)) from None
        except (OSError, http.client.HTTPException) as unreachable:
            why = unreachable.reason if isinstance(unreachable, urllib.error.URLError) else unreachable
            raise InflightError(0, f"{self.url}: {why}") from unreachable
        if warning := response.headers.get("Inflight-Warning"):
            warnings.warn(f"{self.url}: {warning}", stacklevel=2)
        return response


def _is_this_machine(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body.removeprefix(b"data:"))["error"])  # a stream's is an event
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()


def _answer(outputs: dict[str, Any]) -> Answer:
    if "error" in outputs and "text_output" not in outputs:  # of a stream that had begun
        raise InflightError(500, str(outputs["error"]))
    text = outputs.get("text_output", "")
    return Answer(text if isinstance(text, str) else "".join(text), outputs)
