# SPDX-License-Identifier: Apache-2.0
"""The recorded cases and their models, unpacked; the servers that they are replayed against; what does not pass yet."""

import json
import pathlib
import shutil
import tarfile
import tempfile
import time
import tomllib

import pytest
from compare import compare
from live_server import start_server
from steps import Peer, perform

HERE = pathlib.Path(__file__).parent
# Models that cases load themselves, or that cannot be loaded.
NOT_AT_START = ("bad_", "dyn_", "stat_", "trace_", "cached", "never_")
MODELS_WITHOUT_CONTROL = ["simple", "id_fp32", "words", "versions_all"]
RULES = ["model-repository,statistics:admin-key=secret", "health:h-key=hv"]
FRESH_FOR_EACH_CASE = ("unready", "strict")
TRIES_OF_TIMED_CASES = 5


def unpack(folder):
    with tarfile.open(HERE / "recorded.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # later Pythons warn without; Debian 12's has none
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder)


def read_cases(protocol):
    """The cases of a protocol, in order of their ids."""
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        unpack(folder)
        for path in sorted(pathlib.Path(folder, protocol).rglob("*.case.json")):
            cases.append(json.loads(path.read_text()))
    return cases


def read_exceptions():
    """Why a case does not pass, by its id."""
    entries = tomllib.loads((HERE / "exceptions.toml").read_text()).get("exception", [])
    reasons = {}
    for entry in entries:
        for case in entry["cases"]:
            assert case not in reasons, f"{case} is listed twice in exceptions.toml"
            reasons[case] = entry["reason"]
    return reasons


def parameters(protocol):
    """One pytest parameter for each case; a listed one must fail."""
    cases, reasons = read_cases(protocol), read_exceptions()
    unknown = {c for c in reasons if c.startswith(protocol + "/")} - {case["id"] for case in cases}
    assert not unknown, f"exceptions.toml lists what is no case: {sorted(unknown)}"
    return [
        pytest.param(
            case,
            id=case["id"],
            marks=[pytest.mark.xfail(strict=True, reason=reasons[case["id"]])] if case["id"] in reasons else [],
        )
        for case in cases
    ]


def flags(profile, models):
    """How the server of a profile is started; `models` is the folder of the unpacked models."""
    if profile == "none":
        few = models.parent / "few_models"
        for name in MODELS_WITHOUT_CONTROL:
            shutil.copytree(models / name, few / name, dirs_exist_ok=True)
        return ["--model-repository", few]
    control = ["--model-repository", models, "--model-control-mode=explicit"]
    if profile == "restricted":
        return [
            *control, "--load-model=simple", "--load-model=params", "--id=testserver",
            *(f"--http-restricted-api={rule}" for rule in RULES),
            *(f"--grpc-restricted-protocol={rule}" for rule in RULES),
            "--http-header-forward-pattern=(?i)x-fwd-.*", "--grpc-header-forward-pattern=(?i)x-fwd-.*",
            "--trace-config=mode=opentelemetry", "--trace-config=rate=5",
            "--metrics-config=histogram_latencies=true", "--metrics-config=summary_latencies=true",
        ]  # fmt: skip
    at_start = [m.name for m in sorted(models.iterdir()) if not m.name.startswith(NOT_AT_START)]
    return [
        *control, *(f"--load-model={name}" for name in at_start), "--allow-client-shm=true",
        "--http-allowed-host=x",  # as some cases call it
        "--cache-config=local,size=1048576", f"--trace-config=triton,file={models.parent / 'trace.json'}",
    ]  # fmt: skip


class Servers:
    """Starts the server of a profile when a case first needs it; of some profiles anew for each case."""

    def __init__(self, folder):
        self._folder = folder
        self._running = {}
        self._count = 0
        unpack(folder)

    def peer(self, profile):
        if profile in FRESH_FOR_EACH_CASE:
            self._stop(profile)
        if profile not in self._running:
            self._count += 1
            work = self._folder / f"server{self._count}"
            work.mkdir()
            server = start_server(work, None, *flags(profile, self._folder / "models"))
            self._running[profile] = (server, Peer(server.http, server.grpc, server.metrics))
        return self._running[profile][1]

    def _stop(self, profile):
        if profile not in self._running:
            return
        server, peer = self._running.pop(profile)
        peer.close()
        assert server.process.poll() is None, f"the server ended by itself:\n{server.log.read_text()[-4000:]}"
        assert server.stop() == 0, server.log.read_text()[-4000:]

    def stop(self):
        for profile in list(self._running):
            self._stop(profile)


def differences_of(case, peer):
    differences = []
    for i, step in enumerate(case["steps"]):
        seen = perform(step, peer)
        if "expect" in step and "era" not in step:
            differences += [f"step {i}: {d}" for d in compare(step, step["expect"], seen)]
    return differences


def replay(case, peer):
    """Fails with what differs from the recording.

    What happens within a deadline, while another request runs, or in one step of an ensemble before another, depends on
    the machine too: such cases get more tries.
    """
    is_timed = any(word in json.dumps(case) for word in ('"timeout_s"', '"start_ms"', '"cancel_after_ms"', '"ens_stream"'))
    for tries_left in range(TRIES_OF_TIMED_CASES if is_timed else 1, 0, -1):
        differences = differences_of(case, peer)
        if not differences:
            return
        if tries_left > 1:
            time.sleep(1)  # lets what the try left running come to its end
    pytest.fail("\n".join(differences), pytrace=False)
