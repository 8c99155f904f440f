# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS of the metrics port: who may scrape, who is refused, and which flags do not start."""

import os
import pathlib

import pytest
import requests
from live_server import start_error, start_server

REFUSED = (requests.exceptions.ConnectionError, requests.exceptions.SSLError)


def flags(pair):
    return ["--metrics-server-cert", pair.certificate, "--metrics-server-key", pair.key]


def scrape(server, root, client=None):
    answer = requests.get(
        f"https://{server.metrics}/metrics", timeout=30, verify=str(root.certificate),
        cert=client and (str(client.certificate), str(client.key)),
    )  # fmt: skip
    answer.raise_for_status()
    return answer.text


def serve(path, repository, *options):
    return start_server(path, None, "--model-repository", repository, "--allow-grpc=false", *options, max_kv_tokens=None)


def test_the_page_goes_over_tls_and_http_stays_plain(tmp_path, repository, certificates):
    server = serve(tmp_path, repository, "--metrics-use-ssl=true", *flags(certificates.server))
    assert "nv_inference" in scrape(server, certificates.root)
    with pytest.raises(REFUSED):
        scrape(server, certificates.other_root)
    with pytest.raises(REFUSED):
        requests.get(f"http://{server.metrics}/metrics", timeout=30)
    assert requests.get(f"http://{server.http}/v2/health/ready", timeout=30).ok
    assert server.stop() == 0


def test_mutual_tls_asks_the_scraper_for_a_certificate(tmp_path, repository, certificates):
    options = [*flags(certificates.server), "--metrics-root-cert", certificates.root.certificate]
    server = serve(tmp_path, repository, "--metrics-use-ssl-mutual=true", *options)
    assert "nv_inference" in scrape(server, certificates.root, certificates.client)
    for client in (None, certificates.stranger):
        with pytest.raises(REFUSED):
            scrape(server, certificates.root, client)
    assert server.stop() == 0


def test_wrong_flags_do_not_start(repository, certificates):
    program = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"

    def error(*options):
        command = [program, "serve", "--model-repository", repository, "--allow-grpc=false", "--http-port=0", "--metrics-port=0"]
        return start_error([*command, *options])

    assert "--metrics-server-cert: a PEM file is needed for TLS" in error("--metrics-use-ssl=true")
    plain = error(*flags(certificates.server))
    assert "--metrics-server-cert: the port would open without TLS; add --metrics-use-ssl=true" in plain
