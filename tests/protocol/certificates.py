# SPDX-License-Identifier: Apache-2.0
"""Certificates for one test run, by `openssl`: two authorities, a server of the first, a client of each."""

import dataclasses
import pathlib
import subprocess

NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclasses.dataclass
class Pair:
    certificate: pathlib.Path
    key: pathlib.Path


@dataclasses.dataclass
class Certificates:
    root: Pair
    other_root: Pair  # whom nobody should trust
    server: Pair
    client: Pair
    stranger: Pair  # a client of the other root


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def make_root(path, name):
    pair = Pair(path / f"{name}.crt", path / f"{name}.key")
    openssl("req", "-x509", *NEW_KEY, "-keyout", pair.key, "-out", pair.certificate, "-days", "2", "-subj", f"/CN={name}")
    return pair


def make_leaf(path, name, root, names=("IP:127.0.0.1", "DNS:localhost")):
    pair = Pair(path / f"{name}.crt", path / f"{name}.key")
    request, extensions = path / f"{name}.csr", path / f"{name}.ext"
    extensions.write_text(f"subjectAltName={','.join(names)}\n")
    openssl("req", *NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
    openssl(
        "x509", "-req", "-in", request, "-CA", root.certificate, "-CAkey", root.key, "-CAcreateserial", "-days", "2",
        "-extfile", extensions, "-out", pair.certificate,
    )  # fmt: skip
    return pair


def make_certificates(path):
    root, other_root = make_root(path, "root"), make_root(path, "other-root")
    return Certificates(
        root, other_root, make_leaf(path, "server", root), make_leaf(path, "client", root),
        make_leaf(path, "stranger", other_root),
    )  # fmt: skip
