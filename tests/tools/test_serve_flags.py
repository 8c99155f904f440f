# SPDX-License-Identifier: Apache-2.0
"""Every flag of tritonserver: honoured, without effect, or refused by name with the reason.

Those of SageMaker and Vertex AI are asked for where these front ends are tested.
"""

import json
import pathlib
import socket
import subprocess
import sys

import pytest
import requests
from command import INFLIGHT

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from conformance_models import add_identity
from live_server import start_server

# With the value that the original has where the flag is missing, or one that changes nothing here.
HONOURED = """
--id=triton --model-repository=REPOSITORY --model-control-mode=explicit --repository-poll-secs=15 --load-model=m
--model-namespacing=false --model-load-thread-count=4
--exit-on-error=true --strict-readiness=true --model-config-name=none --model-load-retry-count=0 --exit-timeout-secs=30
--allow-http=true --http-address=127.0.0.1 --http-port=0 --reuse-http-port=false --http-thread-count=8
--http-max-input-size=67108864 --http-header-forward-pattern=x-forward.* --http-restricted-api=trace:key=value
--allow-grpc=GRPC --grpc-address=127.0.0.1 --grpc-port=0 --reuse-grpc-port=false --grpc-max-response-pool-size=2147483647
--grpc-infer-response-compression-level=none --grpc-header-forward-pattern=x-forward.*
--grpc-restricted-protocol=trace:key=value --grpc-use-ssl=false --grpc-use-ssl-mutual=false --grpc-keepalive-time=7200000
--grpc-keepalive-timeout=20000 --grpc-keepalive-permit-without-calls=false --grpc-http2-max-pings-without-data=2
--grpc-http2-min-recv-ping-interval-without-data=300000 --grpc-http2-max-ping-strikes=2 --grpc-max-connection-age=3600000
--grpc-max-connection-age-grace=1000 --allow-metrics=true --metrics-address=127.0.0.1 --metrics-port=0
--metrics-interval-ms=2000 --allow-gpu-metrics=true --allow-cpu-metrics=true --metrics-config=counter_latencies=true
--log-verbose=0 --log-info=true --log-warning=true --log-error=true --log-format=default --trace-config=level=OFF
--cache-config=local,size=1048576 --backend-config=python,shm-region-prefix-name=prefix0_ --allow-client-shm=false
--rate-limit=off --rate-limit-resource=r:1 --disable-auto-complete-config=true --strict-model-config=false
"""

# Honoured too, but with what the test has at hand they would change how the server is reached, or belong together.
OTHERS = """
--model-store --log-file --grpc-server-cert --grpc-server-key --grpc-root-cert --response-cache-byte-size --trace-file
--trace-level --trace-rate --trace-count --trace-log-frequency
"""

# With the value that the original has, and what is no value of it.
WITHOUT_EFFECT = [
    ("--enable-peer-access", "true", "maybe"),
    ("--grpc-infer-thread-count", "2", "1"),
    ("--grpc-infer-allocation-pool-size", "8", "0"),
    ("--backend-directory", "/opt/tritonserver/backends", None),
    ("--repoagent-directory", "/opt/tritonserver/repoagents", None),
    ("--cache-directory", "/opt/tritonserver/caches", None),
    ("--pinned-memory-pool-byte-size", "268435456", "-1"),
    ("--cuda-memory-pool-byte-size", "0:67108864", None),
    ("--cuda-virtual-address-size", "0:1073741824", None),
    ("--min-supported-compute-capability", "7.5", "9.0"),
    ("--buffer-manager-thread-count", "0", "-1"),
]

# Values that ask for something, and words of the reason; the value that asks for nothing, if any.
REFUSED = [
    ("--host-policy", "p,numa-node=0", "numactl", None),
    ("--model-load-gpu-limit", "0:0.5", "--kv-cache-free-memory-fraction", None),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    add_identity(folder, "m")
    return folder


def error_of(repository, *flags):
    command = [INFLIGHT, "serve", "--model-repository", repository, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr.strip().splitlines()[-1]


def test_the_page_of_options_knows_every_flag():
    page = subprocess.run([INFLIGHT, "options"], capture_output=True, text=True, timeout=60, check=True).stdout
    rows = {}
    for line in page.split("## inflight run")[0].splitlines():
        if line.startswith("| `--"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows[cells[0].strip("`")] = cells
            for alias in [word.rstrip(";") for word in cells[3].split() if word.startswith("--")]:
                rows[alias] = cells
    for flag in [flag.split("=")[0] for flag in HONOURED.split()] + OTHERS.split():
        assert flag in rows and not rows[flag][4].startswith(("Refused:", "No effect:")), flag
    for flag, _, _ in WITHOUT_EFFECT:
        assert rows[flag][4].startswith("No effect: "), flag
    for flag, _, reason, _ in REFUSED:
        assert rows[flag][4].startswith("Refused: ") and reason in rows[flag][4], flag


def test_all_flags_at_once_start_a_server_that_says_which_have_no_effect(tmp_path, repository):
    values = {"REPOSITORY": str(repository), "GRPC": "true"}
    flags = []
    for flag in HONOURED.split():
        name, value = flag.split("=", 1)
        flags.append(f"{name}={values.get(value, value)}")
    flags += [name if value is None else f"{name}={value}" for name, value, _ in WITHOUT_EFFECT]
    flags += [f"{name}={nothing}" for name, _, _, nothing in REFUSED if nothing]
    server = start_server(tmp_path, None, *flags, max_kv_tokens=None)
    assert server.stop() == 0
    log = server.log.read_text()
    for name, value, _ in WITHOUT_EFFECT:
        assert f"option has no effect option={name} value={'true' if value is None else value} " in log, name
    assert log.count("option has no effect") == len(WITHOUT_EFFECT)
    [row] = [line for line in log.splitlines() if line.startswith("| python ")]
    assert json.loads(row.split("|")[3]) == {"shm-region-prefix-name": "prefix0_"}


@pytest.mark.parametrize(("flag", "value"), [(flag, bad) for flag, _, bad in WITHOUT_EFFECT if bad is not None])
def test_flags_without_effect_still_have_to_be_well_formed(repository, flag, value):
    assert error_of(repository, f"{flag}={value}").startswith(f"inflight: {flag}: got '{value}', needs ")


@pytest.mark.parametrize(("flag", "value", "reason"), [row[:3] for row in REFUSED])
def test_refusals_name_the_flag_and_why(repository, flag, value, reason):
    error = error_of(repository, flag, value)
    assert error.startswith(f"inflight: {flag}: got '{value}'; ") and reason in error
    assert "not supported" not in error


@pytest.mark.parametrize("word", ["python", "python,=x", "python,key", ""])
def test_settings_of_back_ends_have_a_form(repository, word):
    assert "needs <backend>,<setting>=<value>" in error_of(repository, "--backend-config", word or "x")


@pytest.mark.parametrize("word", ["r", ":1", "r:0", "r:x", "r:1:1"])
def test_resources_have_a_form(repository, word):
    assert f"--rate-limit-resource: got '{word}'" in error_of(repository, "--rate-limit-resource", word)


@pytest.mark.parametrize("flag", ["--no-such-flag=1", "--httpport"])
def test_unknown_flags_end_the_start(repository, flag):
    assert error_of(repository, flag).startswith(f"inflight: unknown option '{flag.split('=')[0]}'")


@pytest.mark.parametrize("remote", ["s3://", "s3://https://host:9000", "gs://bucket/../x", "as://account"])
def test_wrong_addresses_of_repositories_end_the_start(repository, remote):
    error = error_of(repository, "--model-repository", remote)
    assert error.startswith(f"inflight: --model-repository: '{remote}': ") and "; an address is " in error


def test_a_log_file_that_cannot_be_written_ends_the_start(repository, tmp_path):
    error = error_of(repository, "--log-file", tmp_path)  # a directory
    assert error.startswith("inflight: --log-file: ") and str(tmp_path) in error


@pytest.mark.parametrize(
    ("flags", "who"),
    [
        (["--http-port=8000", "--grpc-port=8000"], "HTTP requests and GRPC requests"),
        (["--http-port=8000", "--metrics-port=8000"], "HTTP requests and metrics requests"),
        (["--http-port=1", "--grpc-port=8000", "--metrics-port=8000"], "GRPC requests and metrics requests"),
        (["--http-address=0.0.0.0", "--http-port=8080", "--allow-sagemaker=true"], "HTTP requests and SageMaker requests"),
    ],
)
def test_two_front_ends_at_one_place_end_the_start_before_models_are_loaded(repository, flags, who):
    """In the words of tritonserver 2.51.0."""
    address = "0.0.0.0:8080" if "SageMaker" in who else "127.0.0.1:8000"
    error = error_of(repository, *flags)
    assert error == f"inflight: The server cannot listen to {who} at the same address and port {address}"


def test_a_port_that_is_off_is_at_no_place(tmp_path, repository):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    flags = ("--model-repository", repository, f"--http-port={port}", f"--grpc-port={port}", "--allow-grpc=false")
    server = start_server(tmp_path, None, *flags, max_kv_tokens=None)
    assert server.http == f"127.0.0.1:{port}" and server.grpc is None
    assert server.stop() == 0


def test_boolean_flags_stand_alone_or_negated(tmp_path, repository):
    flags = ("--no-allow-grpc", "--http-metrics", "--model-repository", repository, "--allow-cpu-metrics")
    server = start_server(tmp_path, None, *flags, max_kv_tokens=None)
    assert server.grpc is None
    assert requests.get(f"http://{server.http}/metrics", timeout=30).ok
    assert server.stop() == 0
    assert "--no-nothing" in error_of(repository, "--no-nothing")


def test_a_pattern_of_headers_ends_the_start_by_its_flag(repository):
    for flag in ("--http-header-forward-pattern", "--grpc-header-forward-pattern"):
        assert error_of(repository, f"{flag}=(").startswith(f"inflight: {flag}: header forward pattern '('")


def test_a_flag_without_its_value_takes_none_of_what_follows(repository):
    assert error_of(repository, "--http-port=", "--allow-grpc=false").startswith("inflight: --http-port: got ''")
    assert error_of(repository, "--log-info=", "--allow-grpc=false").startswith("inflight: --log-info: got ''")
    assert error_of("", f"--id={repository}") == "inflight: creating server: failed to stat file"
