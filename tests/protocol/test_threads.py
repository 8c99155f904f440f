# SPDX-License-Identifier: Apache-2.0
"""The threads of a server are those of the table in docs/architecture.md, by their names."""

import pathlib
import re
import time

import pytest
from conformance_models import add_identity
from live_server import ROOT, is_sanitized, start_server
from test_vertex_ai import ENVIRONMENT

# Names that no thread bears while these servers wait: they end with a load, belong to models that are not served here, or
# begin with a profile.
PASSING = {"load", "background", "mock_llm", "profile", "sleep"}
# They need a GPU, NVIDIA's server, or a launcher.
OTHERS_OWN = {"the GPU driver's", "in Triton's server", "rank watch", "workers", "shadow"}


def table():
    """Row -> names; one that ends with an ellipsis stands for all that begin so."""
    page = (ROOT / "docs/architecture.md").read_text()
    body = page.split("| thread | names |", 1)[1].split("\n\n", 1)[0]
    rows = [line.split(" | ") for line in body.splitlines()[2:]]
    return {row[0].removeprefix("| "): set(re.findall(r"`([^`]+)`", row[1])) for row in rows}


def names_of(server):
    names = []
    for comm in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/comm"):
        names.append(comm.read_text().removesuffix("\n"))
    return names


def settle(server):
    """Threads have the name of the one that started them until they run."""
    until = time.monotonic() + 30
    while not is_sanitized() and names_of(server).count("inflight") > 1 and time.monotonic() < until:
        time.sleep(0.05)


def is_name(thread, name):
    return thread.startswith(name[:-1]) if name.endswith("…") else thread == name


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Between them they start each kind of thread."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    add_identity(first / "models", "queued", "dynamic_batching { default_queue_policy { max_queue_size: 4 } }")
    add_identity(second / "models", "alone")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        both = [
            start_server(
                *(first, pathlib.Path(ROOT / "models/demo"), "--model-repository", first / "models"),
                *("--allow-http=true", "--allow-grpc=true", "--allow-sagemaker=true", "--sagemaker-port=0", "--admin-port=0"),
                *("--vertex-ai-default-model=queued", "--trace-config", f"triton,file={first / 'trace'}"),
                *("--trace-config", "level=TIMESTAMPS", "--cog-port=0", f"--kv-events-endpoint=ipc://{first / 'events'}"),
                "--tensor-parallel-size=2",
                "--pipeline-parallel-size=2",
                "--openai-port=0",
                f"--record={first / 'journal'}",
            )
        ]
    try:
        both.append(
            start_server(
                *(second, None, "--model-repository", second / "models", "--model-control-mode=poll"),
                *("--trace-config", "mode=opentelemetry", "--trace-config", "opentelemetry,url=http://127.0.0.1:9/v1/traces"),
                *("--trace-config", "level=TIMESTAMPS"),
            )
        )
        for server in both:
            settle(server)
        yield both
    finally:
        status = [server.stop() for server in both]
    assert status == [0] * len(both)


def test_each_thread_is_in_the_table(servers):
    known = set().union(*table().values())
    for server in servers:
        unknown = [thread for thread in names_of(server) if not any(is_name(thread, name) for name in known)]
        assert not unknown


def test_threads_are_named_but_the_first(servers):
    if is_sanitized():  # names alone are compared then, by the two tests beside this one
        pytest.skip("sanitizers start threads of their own, which have the process's name; CI's release build runs it")
    for server in servers:
        assert names_of(server).count("inflight") == 1


def test_each_name_of_the_table_is_a_thread_s(servers):
    threads = {thread for server in servers for thread in names_of(server)}
    for row, names in table().items():
        if row in OTHERS_OWN:
            continue
        for name in names - PASSING:
            assert any(is_name(thread, name) for thread in threads), f"{row}: no thread is called {name}"
