# SPDX-License-Identifier: Apache-2.0
"""A server of one's own for as long as a `with` lasts: for tests, notebooks and scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from .client import Answer, Client, InflightError
from .program import demo_model, program


class Server:
    """Starts `inflight serve` on free ports of 127.0.0.1, waits until it is ready, and ends it with the `with`.

    `model` is a Hugging Face, checkpoint or engine directory, the demo model where it is None; a repository is
    `Server(None, "--model-repository", DIR)`. `options` are further flags of `inflight serve`; ports that they, or the
    file of `--config`, name are taken. Addresses and TLS of HTTP are not among them: ValueError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *options: str,
        api_key: str | None = None,
        startup_timeout: float = 300.0,
        env: Mapping[str, str] | None = None,
    ):
        self._options = list(options)
        for option in options:
            if option.split("=")[0] in ("--http-address", "--http-use-ssl"):
                raise ValueError(f"{option}: inflight.Server asks over plain HTTP at 127.0.0.1; start `inflight serve` yourself")
        if model is not None:
            self._options.insert(0, os.fspath(model))
        elif not any(option.split("=")[0] in ("--model-repository", "--config") for option in options):
            self._options.insert(0, str(demo_model()))
        self._api_key = api_key
        self._startup_timeout = startup_timeout
        self._env = dict(os.environ if env is None else env)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the server is ready; InflightError with the end of its log where it is not."""
        if self._process is not None:
            raise InflightError(0, "the server runs already")
        self._folder = tempfile.TemporaryDirectory(prefix="inflight-")
        port_file = Path(self._folder.name) / "ports.json"
        command = [str(program()), "serve", *self._options, "--port-file", str(port_file)]
        for port in ("http_port", "grpc_port", "metrics_port"):
            flag = "--" + port.replace("_", "-")
            if not any(option.split("=")[0] == flag for option in self._options) and port not in self._config():
                command += [flag, "0"]
        with open(self._log_file(), "wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env)
        try:
            self._wait_for(port_file)
        except BaseException:
            self.stop()
            raise

    def stop(self, timeout: float = 60.0) -> None:
        """Lets what runs finish. A server that has not ended after `timeout` seconds is killed."""
        process, self._process = self._process, None
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    @property
    def url(self) -> str:
        """Of HTTP: "http://127.0.0.1:41234"."""
        return f"http://127.0.0.1:{self._port('http')}"

    @property
    def grpc(self) -> str:
        """As gRPC's clients take it: "127.0.0.1:41235"."""
        return f"127.0.0.1:{self._port('grpc')}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._port('metrics')}/metrics"

    @property
    def client(self) -> Client:
        return Client(self.url, api_key=self._api_key)

    def generate(self, text: str, *, max_tokens: int = 64, model: str = "ensemble", **parameters: Any) -> Answer:
        return self.client.generate(text, max_tokens=max_tokens, model=model, **parameters)

    def stream(self, text: str, *, max_tokens: int = 64, model: str = "ensemble", **parameters: Any) -> Iterator[Answer]:
        return self.client.stream(text, max_tokens=max_tokens, model=model, **parameters)

    def log(self) -> str:
        """What the server wrote so far."""
        return self._log_file().read_text(errors="replace")

    def _config(self) -> dict[str, Any]:
        """Of the file that `--config` names; a file that is wrong is the server's to refuse."""
        for i, option in enumerate(self._options):
            name, equals, value = option.partition("=")
            if name != "--config":
                continue
            path = value if equals else "".join(self._options[i + 1 : i + 2])
            try:
                config = json.loads(Path(path).read_text())
            except (OSError, ValueError):
                return {}
            return config if isinstance(config, dict) else {}
        return {}

    def _log_file(self) -> Path:
        if self._folder is None:
            raise InflightError(0, "the server does not run")
        return Path(self._folder.name) / "server.log"

    def _port(self, name: str) -> int:
        if self._process is None:
            raise InflightError(0, "the server does not run: use it in `with inflight.Server(...) as server:`")
        if not self._ports.get(name):
            raise InflightError(0, f"the server has no port of {name}")
        return self._ports[name]

    def _wait_for(self, port_file: Path) -> None:
        """The server puts the file there, whole, once it is ready."""
        assert self._process is not None
        deadline = time.monotonic() + self._startup_timeout
        while not port_file.exists():
            status = self._process.poll()
            if status is not None:
                raise InflightError(0, f"the server ended with status {status} before it was ready:\n{self._end_of_log()}")
            if time.monotonic() > deadline:
                raise InflightError(0, f"the server is not ready after {self._startup_timeout} s:\n{self._end_of_log()}")
            time.sleep(0.02)
        self._ports = json.loads(port_file.read_text())

    def _end_of_log(self) -> str:
        return "\n".join(self.log().splitlines()[-20:])
