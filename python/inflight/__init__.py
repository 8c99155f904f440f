# SPDX-License-Identifier: Apache-2.0
"""Starts the server that this package brings, and asks it or any other for text.

    import inflight

    with inflight.Server() as server:  # of the demo model; Server("DIR") of yours
        print(server.generate("What is 27 + 54?", max_tokens=20).text)
        for piece in server.stream("Once upon a time", max_tokens=60):
            print(piece.text, end="")

A server that runs elsewhere is asked by `inflight.Client("http://host:8000")`. Nothing but the standard library is
needed.
"""

from .client import Answer, Client, InflightError
from .program import demo_model, program
from .server import Server

__all__ = ["Answer", "Client", "InflightError", "Server", "demo_model", "program"]
