# SPDX-License-Identifier: Apache-2.0
"""A hub of Hugging Face on this machine: the routes that its documentation describes, with redirections to another address for
large files, ETags and ranges. Faults are asked for by name."""

import hashlib
import http.server
import json
import os
import threading
import urllib.parse

COMMIT = "c" * 40


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def without_hub():
    """This process's environment, but for what leads to a hub, its cache, models of the user or a proxy."""
    prefixes = ("HF_", "HUGGINGFACE", "XDG_")
    return {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and not k.lower().endswith("_proxy")}


class Hub:
    """`files`: {path: bytes}, those in `large` behind a redirection, as LFS files are."""

    def __init__(self, repo, files, large=(), token=None):
        self.repo, self.files, self.large, self.token = repo, files, set(large), token
        self.requests = []  # (path, headers) of each
        self.cut_after = None  # bytes of a large file before the connection ends; once
        self.wrong = set()  # files whose bytes are not what is promised
        self.has_blobs = True  # the listing has digests
        self.has_ranges = True
        self.busy = 0  # so many first answers are 503
        self.store = self._start(self._serve_store)
        self.hub = self._start(self._serve_hub)
        self.endpoint = f"http://127.0.0.1:{self.hub.server_port}"

    def close(self):
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def count(self, part):
        return sum(part in path for path, _ in self.requests)

    def _start(self, serve):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                serve(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    def _answer(self, handler, status, body=b"", **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def _serve_hub(self, handler):
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        if self.busy > 0:
            self.busy -= 1
            return self._answer(handler, 503)
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            return self._answer(handler, 401, X_Error_Message="Invalid credentials")
        if path in (f"/api/models/{self.repo}/revision/{name}" for name in ("main", "v1", COMMIT)):
            return self._answer(handler, 200, json.dumps(self._listing()).encode(), Content_Type="application/json")
        prefix = f"/{self.repo}/resolve/{COMMIT}/"
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or name not in self.files:
            return self._answer(handler, 404, X_Error_Code="EntryNotFound")
        data = self.files[name]
        if name in self.large:
            return self._answer(
                handler, 302, Location=f"http://127.0.0.1:{self.store.server_port}/blob/{urllib.parse.quote(name)}?signature=x",
                X_Linked_Etag=f'"{hashlib.sha256(data).hexdigest()}"', X_Linked_Size=str(len(data)), X_Repo_Commit=COMMIT,
            )  # fmt: skip
        return self._answer(handler, 200, self._bytes_of(name), ETag=f'"{git_hash(data)}"', X_Repo_Commit=COMMIT)

    def _bytes_of(self, name):
        data = self.files[name]
        return data[:-1] + bytes([data[-1] ^ 1]) if name in self.wrong else data

    def _serve_store(self, handler):
        name = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path).removeprefix("/blob/")
        data = self._bytes_of(name)
        begin = 0
        if self.has_ranges and (wanted := handler.headers.get("Range")):
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        else:
            handler.send_response(200)
        handler.send_header("Content-Length", str(len(data) - begin))
        handler.end_headers()
        if self.cut_after is not None:
            handler.wfile.write(data[begin : begin + self.cut_after])
            self.cut_after = None
            handler.close_connection = True
            return handler.connection.close()
        handler.wfile.write(data[begin:])

    def _listing(self):
        siblings = []
        for name, data in self.files.items():
            sibling = {"rfilename": name}
            if self.has_blobs:
                sibling |= {"size": len(data), "blobId": git_hash(data)}
                if name in self.large:
                    sibling["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(sibling)
        return {"id": self.repo, "sha": COMMIT, "private": False, "siblings": siblings}
