# SPDX-License-Identifier: Apache-2.0
"""The binary under the name `tritonserver`, started and stopped as launch_triton_server.py of TensorRT-LLM's back-end does it.

The command line is that of this script; lines of the log those of docs/operations.md, "The log".
"""

import calendar
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest
import requests
import tritonclient.grpc as triton
from conformance_models import add_identity, add_model, infer_body, io
from free_ports import free_ports
from live_server import START_TIMEOUT_S, start_server
from llm_client import wait_until
from server_log import DEFAULT, ISO8601, messages, records

INFLIGHT = pathlib.Path(os.environ["INFLIGHT_BIN_DIR"]) / "inflight"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    add_identity(folder, "plain")
    add_identity(folder, "other")
    return folder


def test_the_command_line_of_the_launcher_works_under_the_name_it_calls(tmp_path, repository):
    link = tmp_path / "tritonserver"
    link.symlink_to(INFLIGHT)
    log = tmp_path / "triton_log.txt"
    log.write_text("of a run before\n")
    grpc_port, http_port, metrics_port = free_ports(3)
    command = [
        link, f"--model-repository={repository}", "--log-verbose=3", f"--log-file={log}", f"--grpc-port={grpc_port}",
        f"--http-port={http_port}", f"--metrics-port={metrics_port}", "--disable-auto-complete-config",
        "--backend-config=python,shm-region-prefix-name=prefix0_",
    ]  # fmt: skip
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    metrics_line = f"Started Metrics Service at 0.0.0.0:{metrics_port}"
    deadline = time.monotonic() + START_TIMEOUT_S
    while metrics_line not in log.read_text():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)
    assert requests.get(f"http://127.0.0.1:{http_port}/v2/health/ready", timeout=30).status_code == 200
    settings = requests.get(f"http://127.0.0.1:{http_port}/v2/logging", timeout=30).json()
    assert (settings["log_file"], settings["log_verbose_level"]) == (str(log), 3)
    curl = ["curl", "-sS", "--fail", f"127.0.0.1:{http_port}/v2/logging", "-d", '{"log_verbose_level": 1}']
    changed = subprocess.run(curl, capture_output=True, text=True, timeout=30, check=True)  # with the type of forms
    assert json.loads(changed.stdout)["log_verbose_level"] == 1
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    text = log.read_text()
    assert text.startswith("of a run before\n")
    assert (tmp_path / "out").read_text() == ""
    lines = records(text)
    assert {pid for _, pid, _ in lines} == {process.pid}
    said = [text for _, _, text in lines]
    started = [line for line in said if line.startswith("Started ")]
    if "--allow-grpc=false" not in command:
        assert started.pop(0) == f"Started GRPCInferenceService at 0.0.0.0:{grpc_port}"
    assert started == [f"Started HTTPService at 0.0.0.0:{http_port}", metrics_line]
    for line in ("| plain | 1       | READY  |", "| other | 1       | READY  |", "| Model | Version | Status |"):
        assert line in text.splitlines()
    assert re.fullmatch(r"inflight \d+\.\d+\.\d+\S*: an LLM inference server", said[0])
    assert {"repository agents", "backends", "options"} <= set(said)
    assert not any(line.startswith("request method=") for line in said)  # which `inflight serve` writes
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
    assert ["Repository Agent", "Path"] in cells and ["Option", "Value"] in cells
    options = dict(row for row in cells[cells.index(["Option", "Value"]) :] if len(row) == 2)
    assert {name: options[name] for name in ("server_id", "model_repository_path[0]", "model_control_mode")} == {
        "server_id": "triton", "model_repository_path[0]": str(repository), "model_control_mode": "MODE_NONE"
    }  # fmt: skip
    # Loaded before the first port is open.
    assert text.index("| plain | 1 ") < text.index("Started HTTPService")
    left = said[said.index("Signal (2) received.") :]
    at = left.index("All models are stopped, unloading models")
    assert re.fullmatch(r"Timeout \d+: Found 0 model versions that have in-flight inferences", left[at - 1])
    assert re.fullmatch(r"Timeout \d+: Found 2 live models and 0 in-flight non-inference requests", left[at + 1])


@pytest.mark.parametrize("name", ["inflight", "tritonserver"])
def test_under_its_own_name_it_listens_for_this_machine_alone(tmp_path, repository, name):
    link, ports = tmp_path / name, tmp_path / "ports.json"
    link.symlink_to(INFLIGHT)
    command = [link, "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0", "--port-file", ports]
    if name == "inflight":
        command.insert(1, "serve")
    with open(tmp_path / "out", "w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        wait_until(lambda: process.poll() is not None or ports.exists())
        reached = {}
        for service, port in json.loads(ports.read_text()).items():
            with socket.socket() as s:
                if port:  # 127.0.0.2 is this machine too, but not the address
                    reached[service] = s.connect_ex(("127.0.0.2", port)) == 0
        process.terminate()
        assert process.wait(60) == 0
    assert {"http", "metrics"} <= set(reached)
    assert set(reached.values()) == {name == "tritonserver"}
    reach = "from other machines" if name == "tritonserver" else "from this machine alone"
    assert reach in (tmp_path / "out").read_text()


def streams(tmp_path, repository, *flags, **environment):
    """What a server that starts and is stopped writes to its standard output and error."""
    ports = tmp_path / "ports.json"
    command = [INFLIGHT, "serve", "--model-repository", repository, "--http-port=0", "--metrics-port=0", "--allow-grpc=false",
               "--port-file", ports, *flags]  # fmt: skip
    with open(tmp_path / "out", "w+") as out, open(tmp_path / "err", "w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=os.environ | environment)
        wait_until(lambda: process.poll() is not None or ports.exists())
        process.terminate()
        assert process.wait(60) == 0
        ports.unlink()
        return (tmp_path / "out").read_text(), (tmp_path / "err").read_text()


@pytest.mark.parametrize(("name", "form"), [("default", DEFAULT), ("ISO8601", ISO8601)])
def test_information_goes_to_standard_output_and_the_rest_to_standard_error(tmp_path, repository, name, form):
    out, err = streams(tmp_path, repository, f"--log-format={name}", "--enable-peer-access=true")
    assert {severity for severity, _, _ in records(out, form)} == {"I"}
    assert [severity for severity, _, _ in records(err, form)] == ["W"] * len(err.splitlines())
    [warning] = messages(err, form)
    assert warning.startswith("option has no effect option=--enable-peer-access")
    assert "| plain | 1       | READY  |" in out.splitlines()


def test_times_are_of_utc(tmp_path, repository):
    before = time.time()
    out, _ = streams(tmp_path, repository, "--log-format=ISO8601", TZ="Asia/Tokyo")
    moment = re.match(r"(\S+)Z I ", out)[1]
    logged = time.strptime(moment, "%Y-%m-%dT%H:%M:%S")
    assert before - 2 <= calendar.timegm(logged) <= time.time() + 2


def test_messages_stand_as_they_are_where_the_environment_says_so(tmp_path, repository):
    out, err = streams(tmp_path, repository, "--enable-peer-access=true", TRITON_SERVER_ESCAPE_LOG_MESSAGES="0")
    assert re.search(r"\w\.cc:\d+\] Signal \(15\) received\.$", out, re.MULTILINE)
    assert re.search(r'\.cc:\d+\] option has no effect option=--enable-peer-access value=true reason="an executor', err)
    assert records(out) == []


def test_a_failed_start_shows_the_table_and_ends_with_1(tmp_path, repository):
    bad = tmp_path / "models"
    add_identity(bad, "good")
    add_model(bad, "bad", "no such kind", io("input", "INPUT0", "[ 2 ]"), io("output", "OUTPUT0", "[ 2 ]"))
    command = [INFLIGHT, "serve", "--model-repository", bad]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.search(r"^\| bad   \| 1       \| UNAVAILABLE: Invalid argument: .*no such kind", done.stdout, re.MULTILINE)
    assert re.search(r"^\| good  \| 1       \| READY ", done.stdout, re.MULTILINE)
    assert "Started" not in done.stdout
    assert "failed to load all models: 'bad'" in done.stderr


def test_a_request_that_outlasts_the_exit_timeout_makes_the_status_1(tmp_path):
    models = tmp_path / "models"
    add_model(
        models, "slow", "slow", io("input", "INPUT0", "[ 2 ]"), io("input", "DELAY", "[ 1 ]"), io("output", "OUTPUT0", "[ 2 ]")
    )
    server = start_server(tmp_path, None, "--model-repository", models, "--exit-timeout-secs=1", max_kv_tokens=None)
    body = infer_body([1, 2])
    body["inputs"].append({"name": "DELAY", "datatype": "INT32", "shape": [1], "data": [4000]})
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        url = f"http://{server.http}/v2/models/slow/infer"
        asked = [pool.submit(requests.post, url, json=body, timeout=60) for _ in range(2)]
        # One waits: the other executes.
        waits = 'nv_inference_pending_request_count{model="slow",version="1"} 1\n'
        wait_until(lambda: waits in requests.get(f"http://{server.metrics}/metrics", timeout=30).text)
        assert server.stop() == 1
        assert not any(each.exception() is None and each.result().ok for each in asked)
    said = messages(server.log.read_text())
    assert "Timeout 0: Found 1 model versions that have in-flight inferences" in said
    # One that waited may have been answered when its connection was closed.
    assert any(re.fullmatch(r"Model 'slow' \(version 1\) has [12] in-flight inferences", line) for line in said)
    assert "Exit timeout expired. Exiting immediately." in said
    assert "All models are stopped, unloading models" not in said


def test_an_abort_leaves_a_stack_trace(tmp_path, repository):
    server = start_server(tmp_path, None, "--model-repository", repository, max_kv_tokens=None)
    server.process.send_signal(signal.SIGABRT)
    assert server.process.wait(60) == -signal.SIGABRT
    assert re.search(r"^SIGABRT, stack trace:\n(.*\n)*?\S*inflight\S* ?.*\n", server.log.read_text(), re.MULTILINE)


# --- flags that nothing else asks for ---


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("address", "host"), [("ipv4:127.0.0.1", "127.0.0.1"), ("ipv6:[::1]", "[::1]")])
def test_addresses_name_their_family(tmp_path, repository, address, host):
    flags = [None, "--model-repository", repository, "--http-address", address, "--grpc-address", address]
    if host == "[::1]" and not has_ipv6():
        command = [INFLIGHT, "serve", *flags[1:], "--http-port=0", "--allow-grpc=false"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1 and f"cannot listen on {address}:0: " in refused.stderr.splitlines()[-1]
        return
    server = start_server(tmp_path, *flags, max_kv_tokens=None)
    ports = json.loads((tmp_path / "ports.json").read_text())
    assert requests.get(f"http://{host}:{ports['http']}/v2/health/ready", timeout=30).ok
    assert requests.get(f"http://{host}:{ports['metrics']}/metrics", timeout=30).ok
    if ports["grpc"]:
        with triton.InferenceServerClient(f"{host}:{ports['grpc']}") as client:
            assert client.is_server_ready()
    assert server.stop() == 0


def test_ports_are_shared_by_servers_that_all_ask_for_it(tmp_path, repository):
    base = ["--model-repository", repository]
    shared = ["--reuse-http-port=true", "--reuse-grpc-port=true"]
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
    first = start_server(places[0], None, *base, *shared, max_kv_tokens=None)
    ports = ["--http-port", first.http.split(":")[1]]
    if first.grpc:
        ports += ["--grpc-port", first.grpc.split(":")[1]]
    for own in [[*ports[:2], "--allow-grpc=false"], ["--http-port=0", *ports[2:]]][: len(ports) // 2]:
        alone = [INFLIGHT, "serve", *base, "--http-address=127.0.0.1", "--grpc-address=127.0.0.1", *own]
        refused = subprocess.run(alone, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1 and "cannot listen on" in refused.stderr
    second = start_server(places[1], None, *base, *shared, *ports, max_kv_tokens=None)
    assert (second.http, second.grpc) == (first.http, first.grpc)
    assert first.stop() == 0
    assert requests.get(f"http://{second.http}/v2/health/ready", timeout=30).ok
    if second.grpc:
        with triton.InferenceServerClient(second.grpc) as client:
            assert client.is_server_ready()
    assert second.stop() == 0


@pytest.fixture(scope="module")
def odd_models(tmp_path_factory):
    """A server of models with and without another configuration, and of one that does not load."""
    folder = tmp_path_factory.mktemp("odd")
    models = folder / "models"
    for name in ("both", "plain", "other"):
        add_identity(models, name)
    text = (models / "both" / "config.pbtxt").read_text()
    for name in ("both", "other"):
        (models / name / "configs").mkdir()
        (models / name / "configs" / "small.pbtxt").write_text(text.replace("[ 2 ]", "[ 3 ]"))
    (models / "other" / "config.pbtxt").unlink()
    add_identity(models, "named.conformance")
    config = models / "named.conformance" / "config.pbtxt"
    config.write_text(config.read_text().replace('backend: "conformance"\n', ""))
    add_model(models, "bad", "no such kind", io("input", "INPUT0", "[ 2 ]"), io("output", "OUTPUT0", "[ 2 ]"))
    flags = ["--model-config-name=small", "--model-load-retry-count=2", "--exit-on-error=false"]
    server = start_server(folder, None, "--model-repository", models, *flags, max_kv_tokens=None)
    yield server
    assert server.stop() == 0


def test_models_are_configured_by_the_named_file_where_they_have_it(odd_models):
    shapes = {}
    for model in ("both", "plain", "other"):
        metadata = requests.get(f"http://{odd_models.http}/v2/models/{model}", timeout=30).json()
        shapes[model] = metadata["inputs"][0]["shape"]
    assert shapes == {"both": [3], "plain": [2], "other": [3]}


def test_a_name_says_the_back_end_where_the_file_does_not(odd_models):
    config = requests.get(f"http://{odd_models.http}/v2/models/named.conformance/config", timeout=30).json()
    assert config["backend"] == "conformance"


@pytest.mark.parametrize("flag", ["--disable-auto-complete-config", "--strict-model-config=true"])
def test_without_completion_a_file_has_to_say_its_back_end(odd_models, flag):
    models = pathlib.Path(odd_models.log.parent) / "models"
    command = [INFLIGHT, "serve", "--model-repository", models, flag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Could not determine backend for model 'named.conformance'" in done.stdout + done.stderr


def test_a_failed_load_is_tried_again_as_often_as_asked(odd_models):
    said = messages(odd_models.log.read_text())
    again = re.compile(r"model is loaded once more after a failure model=bad version=1 retry=(\d) of=2 reason=.*")
    assert [match[1] for match in map(again.fullmatch, said) if match] == ["1", "2"]
    assert len([m for m in said if m.startswith("model not loaded model=bad ")]) == 1


def test_the_metrics_page_has_the_time_of_each_load(odd_models):
    page = requests.get(f"http://{odd_models.metrics}/metrics", timeout=30).text
    times = dict(re.findall(r'^nv_model_load_duration_secs\{model="([\w.]+)",version="1"\} (\S+)$', page, re.MULTILINE))
    assert set(times) == {"both", "plain", "other", "named.conformance"}
    assert all(0 < float(seconds) < START_TIMEOUT_S for seconds in times.values())


def test_what_clients_make_the_server_hold_has_a_bound(tmp_path, repository):
    memory = "--request-memory-byte-size=4194304"
    server = start_server(tmp_path, None, "--model-repository", repository, memory, max_kv_tokens=None)
    url = f"http://{server.http}/v2/models/plain/infer"

    def gauge(name):
        page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
        return int(re.search(rf"^inflight_request_memory_{name} (\d+)$", page, re.MULTILINE)[1])

    refused = requests.post(url, data=b" " * 2_200_000, timeout=30)  # a connection may have a half
    assert refused.status_code == 503 and "--request-memory-byte-size" in refused.text
    assert gauge("refused_total") == 1 and gauge("limit_bytes") == 4194304
    # The larger one that waits for its client gives way to a smaller one.
    with socket.create_connection(server.http.split(":")) as half:
        half.settimeout(30)
        head = b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"
        half.sendall(head + b" " * 1_900_000)
        wait_until(lambda: gauge("bytes") >= 1_900_000)
        assert "failed to parse the request JSON" in requests.post(url, data=b" " * 300_000, timeout=30).text
        with contextlib.suppress(ConnectionResetError):  # what of the body was never read resets the connection
            assert half.recv(1) == b""
        assert gauge("ended_total") == 1
    wait_until(lambda: gauge("bytes") < 65536)
    assert requests.post(url, json=infer_body([1, 2]), timeout=30).ok
    assert server.stop() == 0


def test_metrics_have_an_address_and_an_interval_of_their_own(tmp_path, repository):
    flags = ["--metrics-address=127.0.0.2", "--metrics-interval-ms=20"]
    server = start_server(tmp_path, None, "--model-repository", repository, *flags, max_kv_tokens=None)
    port = server.metrics.split(":")[1]
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{port}/metrics", timeout=30)
    url = f"http://127.0.0.2:{port}/metrics"

    def used():
        return re.search(r"^nv_cpu_memory_used_bytes (\S+)$", requests.get(url, timeout=30).text, re.MULTILINE)[1]

    first = used()
    wait_until(lambda: used() != first)
    assert server.stop() == 0


def test_tags_of_a_model_are_on_the_metrics_page(tmp_path):
    models = tmp_path / "models"
    add_identity(models, "tagged", 'metric_tags { key: "team" value: "search" }')
    server = start_server(tmp_path, None, "--model-repository", models, max_kv_tokens=None)
    page = requests.get(f"http://{server.metrics}/metrics", timeout=30).text
    assert re.search(r'^nv_inference_request_success\{_team="search",model="tagged",version="1"\} 0$', page, re.MULTILINE)
    assert server.stop() == 0


def started(command, tmp_path, **environment):
    """The process and where it writes."""
    with open(tmp_path / "out", "w+") as out:
        return subprocess.Popen(
            [str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, env=os.environ | environment
        ), tmp_path / "out"  # fmt: skip


def test_unique_beginnings_of_flags_are_taken(tmp_path, repository):
    """As getopt_long of the original takes them; cog-triton starts it with --backend-dir, values behind a blank."""
    link, ports = tmp_path / "tritonserver", tmp_path / "ports.json"
    link.symlink_to(INFLIGHT)
    command = [
        link, "--backend-dir", "/opt/backends", "--model-repo", repository, "--http-po=0", "--grpc-po=0", "--metrics-po", "0",
        "--log-v=1", "--port-file", ports,
    ]  # fmt: skip
    process, out = started(command, tmp_path)
    wait_until(lambda: process.poll() is not None or ports.exists())
    process.terminate()
    assert process.wait(60) == 0, out.read_text()
    assert "option=--backend-directory value=/opt/backends" in out.read_text()
    done = subprocess.run([link, "--http-=1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "option '--http-' is ambiguous; possibilities: '--http-" in done.stderr
    unknown = subprocess.run([link, "--no-such-flag=1"], capture_output=True, text=True, timeout=60, check=False)
    assert "unknown option '--no-such-flag'" in unknown.stderr


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--http-port=abc", ['Bad option: "--http-port".', "Invalid option value. Got abc"]),
        ("--log-verbose=x", ['Bad option: "--log-verbose".', "Invalid option value. Got x"]),
        ("--log-info=maybe", ['Bad option: "--log-info".', "invalid value for bool option: maybe"]),
        ("--strict-readiness=2", ['Bad option: "--strict-readiness".', "invalid value for bool option: 2"]),
        ("--rate-limit=never", ['Bad option: "--rate-limit".', "invalid argument for --rate-limit"]),
        ("--model-control-mode=x", ['Bad option: "--model-control-mode".', "invalid argument for --model-control-mode"]),
        ("--log-format=x", ['Bad option: "--log-format".', "invalid argument for --log-format"]),
        ("--foo", ["tritonserver: unrecognized option '--foo'"]),
        ("--foo=1", ["tritonserver: unrecognized option '--foo=1'"]),
        ("--http-port", ["tritonserver: option '--http-port' requires an argument"]),
        ("--http-port=70000", []),
    ],
)
def test_a_wrong_flag_has_the_words_of_the_original_and_its_remedy(tmp_path, repository, flag, words):
    """What release 2.51 writes behind its usage."""
    (tmp_path / "tritonserver").symlink_to(INFLIGHT)
    command = [tmp_path / "tritonserver", "--model-repository", repository, flag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, lines[:-1]) == (1, words)
    assert lines[-1].startswith("inflight: ") and flag.split("=")[0] in lines[-1]


@pytest.mark.parametrize(
    ("rank", "size", "launcher"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", '\\"Open MPI\\"'),
        ("PMI_RANK", "PMI_SIZE", "PMI"),
        ("SLURM_PROCID", "SLURM_NTASKS", "Slurm"),
        ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LeaderWorkerSet"),
    ],
)
def test_ranks_above_0_wait(tmp_path, repository, rank, size, launcher):
    """launch_triton_server.py --world_size 2 starts the same line twice under mpirun."""
    command = [INFLIGHT, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    process, out = started(command, tmp_path, **{rank: "1", size: "2"})
    wait_until(lambda: process.poll() is not None or "waits" in out.read_text())
    assert f"Rank 1 of 2 waits: rank 0 serves models of one rank by={launcher}" in out.read_text()
    assert "Started" not in out.read_text()
    process.terminate()
    assert process.wait(60) == 0
    for number, options in (("0", []), ("1", ["--ranks=serve"])):
        ports = tmp_path / f"ports{number}.json"
        process, out = started([*command, *options, "--port-file", ports], tmp_path, **{rank: number, size: "2"})
        wait_until(lambda p=process, f=ports: p.poll() is not None or f.exists())
        process.terminate()
        assert process.wait(60) == 0, out.read_text()
        assert "Started HTTPService" in out.read_text()


def test_a_rank_without_a_size_is_an_error(tmp_path, repository):
    command = [INFLIGHT, "serve", "--model-repository", repository, "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    process, out = started(command, tmp_path, RANK="1")
    assert process.wait(60) != 0
    assert "WORLD_SIZE: is not set, although RANK is" in out.read_text() and "--ranks=serve" in out.read_text()
