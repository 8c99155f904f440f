# SPDX-License-Identifier: Apache-2.0
"""inflight.Client of python/: addresses, what the server warns of, and the words of errors."""

import sys

import pytest
from live_server import DEMO, ROOT, start_server

sys.path.insert(0, str(ROOT / "python"))
import inflight


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = start_server(tmp_path_factory.mktemp("server"), DEMO)
    yield server
    assert server.stop() == 0


def test_an_address_needs_no_scheme(server):
    answer = inflight.Client(server.http).generate("Once upon a time", max_tokens=3)
    assert answer.text == inflight.Client(f"http://{server.http}/").generate("Once upon a time", max_tokens=3).text


def test_a_name_that_the_server_does_not_know_is_warned_of(server):
    client = inflight.Client(server.http)
    said = "'temprature' is not known, did you mean 'temperature'"
    with pytest.warns(UserWarning, match=said):
        client.generate("Once upon a time", max_tokens=2, temprature=0.5)
    with pytest.warns(UserWarning, match=said):
        list(client.stream("Once upon a time", max_tokens=2, temprature=0.5))


def test_an_error_is_the_servers_words(server):
    client = inflight.Client(server.http)
    words = "in ensemble 'ensemble', max_tokens: got -3, must be at least 1"
    for ask in (client.generate, lambda *args, **kwargs: list(client.stream(*args, **kwargs))):
        with pytest.raises(inflight.InflightError) as error:
            ask("Once upon a time", max_tokens=-3)
        assert (error.value.status, str(error.value)) == (400, words)


def test_nobody_at_an_address_is_told_with_the_address():
    with pytest.raises(inflight.InflightError) as error:
        inflight.Client("127.0.0.1:1").generate("Once upon a time")
    assert error.value.status == 0 and str(error.value) == "http://127.0.0.1:1: [Errno 111] Connection refused"
