# SPDX-License-Identifier: Apache-2.0
"""deploy/container: what the recipe copies is there, no target's user is root, the entry point and the health check do theirs.

What prepare.sh does is run on a bare system by scripts/try_packages.sh. The target cog is started as its image starts it by
tests/compat/test_cog_stand_in.py.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import requests
from command import INFLIGHT, ROOT, run

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))
from conformance_models import add_identity, infer_body
from free_ports import free_port
from live_server import start_server

FOLDER = ROOT / "deploy/container"
RECIPE = (FOLDER / "Dockerfile").read_text()
INSTALLED = "/usr/share/inflight/"  # where the package puts deploy/, compat/ and the demo model (cmake/install.cmake)


def read(recipe):
    """(arguments before the first stage, {stage: its instructions as (name, rest)}); the last stage, without a name, is ''."""
    arguments, stages = {}, {}
    for line in re.sub(r"^#.*\n", "", recipe, flags=re.MULTILINE).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        name, rest = line.split(" ", 1)
        if name == "ARG" and not stages:
            arguments.update([rest.split("=", 1)])
        elif name == "FROM":
            base, _, stage = rest.partition(" AS ")
            stages[stage] = [(name, re.sub(r"\$\{(\w+)\}", lambda match: arguments[match.group(1)], base))]
        else:
            list(stages.values())[-1].append((name, rest))
    return arguments, stages


ARGUMENTS, STAGES = read(RECIPE)


def values(stage, name):
    """Of every instruction of this name in a stage, those of the stages below it first."""
    ((_, base), *_) = STAGES[stage]
    return (values(base, name) if base in STAGES else []) + [rest for key, rest in STAGES[stage] if key == name]


def health(port, *path):
    command = [FOLDER / "health.sh", str(port), *path]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


# ---- The recipe ----


def test_what_is_copied_and_run_is_there():
    words = [word for stage in STAGES for name in ("COPY", "RUN") for rest in values(stage, name) for word in rest.split()]
    named = {word for word in words if word.startswith("/src/")} - {"/src"}
    assert {"/src/dist/inflight_*.deb", "/src/dist/inflight-cuda_*.deb", "/src/scripts/release.sh"} <= named
    for name in named:
        assert name.startswith("/src/dist/") or os.access(ROOT / name.removeprefix("/src/"), os.X_OK), name
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not [name for name in named for folder in ignored if name.startswith(f"/src/{folder}/") and folder != "dist"]
    for word in words:
        if word.startswith(INSTALLED):
            assert os.access(ROOT / word.removeprefix(INSTALLED), os.X_OK), word
    # Neither a checkout's own builds nor its environments go to the builder.
    assert {"build", "dist", ".venv", ".venv-clients"} <= set(ignored)


def test_each_target_is_a_stage_and_the_default_is_the_cpu_s():
    assert [stage for stage in STAGES if stage.startswith("build")] == ["build", "build-cuda"]
    assert {"cpu", "cuda", "cog"} <= set(STAGES)
    assert STAGES[list(STAGES)[-1]] == [("FROM", "cpu")] and list(STAGES)[-1] == ""
    assert values("build-cuda", "RUN") == ["/src/scripts/release.sh --cuda"]


def test_base_images_are_named_by_version_and_the_cuda_ones_by_arguments():
    bases = {stage: rest for stage, ((_, rest), *_) in STAGES.items() if rest not in STAGES}
    assert all(re.fullmatch(r"[a-z/]+:[\w.-]*\d[\w.-]*", base) for base in bases.values()), bases
    assert bases["cuda"].replace("-runtime-", "-devel-") == bases["build-cuda"] != bases["cuda"]
    assert bases["cuda"].startswith(ARGUMENTS["CUDA"] + "-") and bases["cuda"].endswith(ARGUMENTS["CUDA_SYSTEM"])
    major, minor = map(int, re.search(r":(\d+)\.(\d+)", ARGUMENTS["CUDA"]).groups())
    assert (major, minor) >= (12, 8), "which has code for compute capability 10.0"
    assert ARGUMENTS["COG_ON"] in ("cpu", "cuda")


def test_the_cuda_target_is_run_as_the_cpu_s():
    """All instructions but those that say where the package comes from."""
    cpu, cuda = ([pair for pair in STAGES[name] if pair[0] not in ("FROM", "COPY")] for name in ("cpu", "cuda"))
    assert cpu == cuda


@pytest.mark.parametrize("target", ["", "cpu", "cuda", "cog"])
def test_the_server_is_not_roots_and_says_how_it_is_asked(target):
    user = values(target, "USER")[-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "by number, which Kubernetes can tell from root's"
    assert f"--uid {user.split(':')[0]} " in (FOLDER / "prepare.sh").read_text()
    (check,) = values(target, "HEALTHCHECK")
    assert json.loads(check.split("CMD ")[1]) == ["/usr/local/bin/health.sh"]
    assert values(target, "STOPSIGNAL") == ["SIGTERM"]
    ports = [port for rest in values(target, "EXPOSE") for port in rest.split()]
    assert ports == ["8000", "8001", "8002", *(["5000"] if target == "cog" else [])]
    assert not [line for line in values(target, "ENV") if re.search("KEY|TOKEN|SECRET|PASSWORD", line)]


def test_the_server_s_arguments_are_options():
    assert json.loads(values("", "ENTRYPOINT")[-1]) == ["/usr/local/bin/entrypoint.sh"]
    command, model, *options = json.loads(values("", "CMD")[-1])
    assert command == "serve" and model == INSTALLED + "demo" and (ROOT / "models/demo/config.json").is_file()
    help_text = run(command, "--help-all").stdout
    assert all(f"{option} " in help_text for option in options if option.startswith("--"))


def test_what_the_path_has_is_in_the_package():
    (links,) = re.findall(r"^ln -sf (.*) /usr/local/bin/$", (FOLDER / "prepare.sh").read_text(), re.MULTILINE)
    files = [ROOT / link.replace("$deploy", "deploy") for link in links.split()]
    assert {file.name for file in files} == {"entrypoint.sh", "health.sh", "serve"}
    assert all(os.access(file, os.X_OK) for file in files)
    assert f"deploy={INSTALLED}deploy\n" in (FOLDER / "prepare.sh").read_text()
    assert "install(DIRECTORY deploy " in (ROOT / "cmake/install.cmake").read_text()
    for target in ("cpu", "cuda"):
        assert values(target, "ENV") == ["PATH=/opt/tritonserver/bin:$PATH"]


def test_sagemaker_is_told_what_the_image_can():
    """Amazon's guide, "Create Your Own Container for SageMaker Multi-Model Endpoints" and "bind to port"."""
    for target in ("cpu", "cuda"):
        labels = dict(label.split("=") for label in values(target, "LABEL"))
        assert labels == {
            "com.amazonaws.sagemaker.capabilities.accept-bind-to-port": "true",
            "com.amazonaws.sagemaker.capabilities.multi-models": "true",
        }


# ---- The entry point ----


@pytest.fixture
def path(tmp_path):
    """PATH as in the image, with the program under test."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "serve").symlink_to(ROOT / "deploy/sagemaker/serve")
    for name in ("inflight", "tritonserver"):
        (folder / name).symlink_to(INFLIGHT)
    return f"{folder}:{os.environ['PATH']}"


def docker_run(path, *words, **variables):
    """What `docker run IMAGE WORD...` would do: (exit status, its output, its errors)."""
    command = [FOLDER / "entrypoint.sh", *words]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SAGEMAKER_")}
    environment |= {"PATH": path, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_commands_and_options_are_inflights(path):
    assert docker_run(path, "--version")[1] == run("--version").stdout
    assert docker_run(path, "tokenize", "--help")[1] == run("tokenize", "--help").stdout
    assert docker_run(path, "top", "--help")[1] == run("top", "--help").stdout, "not the machine's own program"
    status, _, text = docker_run(path, "srve")
    assert (status, text) == (1, run("srve", check=False).stderr) and "did you mean 'serve'?" in text


def test_other_programs_are_themselves(path):
    assert docker_run(path, "python3", "-c", "print(27 + 54)")[:2] == (0, "81\n")
    assert docker_run(path, "sh", "-c", "exit 7")[0] == 7
    status, text, _ = docker_run(path, "tritonserver", "--help")
    assert status == 0 and "--model-repository" in text


@pytest.mark.skipif(pathlib.Path("/opt/ml").exists(), reason="shows a machine that is not SageMaker's; here is /opt/ml")
def test_serve_alone_is_inflights_where_nothing_is_of_sagemaker(path):
    status, _, text = docker_run(path, "serve")
    assert (status, text) == (1, run("serve", check=False).stderr)


def test_serve_alone_is_sagemakers_on_its_platform(tmp_path, path):
    add_identity(tmp_path / "model", "only")
    port = free_port()
    variables = {"PATH": path, "SM_MODEL_DIR": str(tmp_path / "model"), "SAGEMAKER_BIND_TO_PORT": str(port)}
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(
            [FOLDER / "entrypoint.sh", "serve"], env=os.environ | variables, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + 60
        while health(port, "/ping") != 0:
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()[-4000:]
            time.sleep(0.05)
        answer = requests.post(f"http://127.0.0.1:{port}/invocations", json=infer_body([7, 8]), timeout=30)
        assert answer.json()["outputs"][0]["data"] == [7, 8]
    finally:
        process.terminate()  # the server itself, which the script has become
        assert process.wait(60) == 0, (tmp_path / "log").read_text()[-4000:]


def test_serve_with_words_is_inflights_on_sagemaker_too(tmp_path, path):
    status, text, _ = docker_run(path, "serve", "--help", SM_MODEL_DIR=str(tmp_path))
    assert (status, text) == (0, run("serve", "--help").stdout)


# ---- The health check ----


def test_the_health_check_tells_whether_a_server_is_ready(tmp_path):
    assert health(free_port()) != 0
    server = start_server(tmp_path)
    try:
        port = server.http.rsplit(":", 1)[1]
        assert health(port) == 0
        assert health(port, "/v2/health/live") == 0
        assert health(port, "/v2/nothing") != 0
        assert health(server.grpc.rsplit(":", 1)[1]) != 0
    finally:
        server.stop()
