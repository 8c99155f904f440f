# SPDX-License-Identifier: Apache-2.0
"""The blocks of the pages about setting up, as they stand there: production.md, migrating.md and embedding.md. A line
that is not run has its reason here."""

import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request

import pytest
from certificates import make_leaf, make_root
from command import BUILD, DEMO, INFLIGHT, NO_GPU, ROOT, run
from light_models import write_light_repository
from live_server import serving
from release_repositories import write_repository

PAGES = ("production.md", "migrating.md", "embedding.md")
LANGUAGES = {"sh", "nginx", "ini", "cmake"}
NOT_RUN = {
    "cmake --preset release && cmake --build --preset release": "it builds all, which the build under test has done",
    "systemctl daemon-reload && systemctl enable --now inflight": "it needs systemd as the first process of the machine",
}
NGINX = shutil.which("nginx", path="/usr/sbin:" + os.environ.get("PATH", ""))
PATH = f"{INFLIGHT.parent}:{os.environ['PATH']}"
CACHE = (BUILD / "CMakeCache.txt").read_text()
PATIENCE_S = 20


def blocks(page):
    """(language, text) of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def of(page, language):
    return [text for name, text in blocks(page) if name == language]


def told(line):
    """Without its comment."""
    return re.sub(r"\s+# .*", "", line)


def lines(text):
    return [line for line in text.splitlines() if told(line) not in NOT_RUN]


def shell(script, folder, **environment):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env={**NO_GPU, "PATH": PATH, **environment},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_every_block_is_of_a_kind_that_is_run_here():
    found = [(page, name) for page in PAGES for name, _ in blocks(page)]
    assert {name for _, name in found} == LANGUAGES
    assert {page for page, _ in found} == set(PAGES)
    written = {told(line) for page in PAGES for text in of(page, "sh") for line in text.splitlines()}
    assert set(NOT_RUN) <= written  # a line that is gone needs no reason
    assert len(NOT_RUN) < 3
    saying = {path.name for path in (ROOT / "docs").glob("*.md") if pathlib.Path(__file__).name in path.read_text()}
    assert saying == set(PAGES)


# --- embedding.md ---

HAS_NO_LIBRARY = "INFLIGHT_STATIC:BOOL=ON" in CACHE or re.search(r"INFLIGHT_SANITIZERS:STRING=\w", CACHE)


@pytest.mark.skipif(
    bool(HAS_NO_LIBRARY), reason="builds with sanitizers and static ones have no libinflight.so; CI's release build runs it"
)
def test_a_program_is_built_as_embedding_says(tmp_path):
    """In a copy of the example, below a prefix of the test."""
    prefix, built = tmp_path / "prefix", tmp_path / "embed"
    source = shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copy(source / "embed/main.cc", tmp_path)
    (tmp_path / "models").symlink_to(ROOT / "models")
    answers = []
    for text in of("embedding.md", "sh"):
        here = "\n".join(lines(text)).replace("build/release", str(BUILD)).replace("/opt/inflight", str(prefix))
        here = here.replace("-o embed ", "-o plain ").replace("/tmp/embed", str(built))
        answers.append(shell(here, tmp_path, CMAKE_GENERATOR="Ninja"))
    told_by_run = run("run", DEMO, "--prompt", "Once upon a time", "--max-tokens", "64", env=NO_GPU).stdout
    assert answers[-1].endswith(told_by_run)
    assert shell('./plain models/demo "Once upon a time"', tmp_path) == told_by_run
    below = re.findall(r"^\| `([\w/.]+)` \| ", (ROOT / "docs/embedding.md").read_text(), re.MULTILINE)
    assert [path for path in below if "/" in path and not (prefix / path).exists()] == []
    (snippet,) = of("embedding.md", "cmake")
    find, link = snippet.splitlines(keepends=True)
    project = f"cmake_minimum_required(VERSION 3.16)\nproject(embed LANGUAGES CXX)\n{find}add_executable(embed main.cc)\n{link}"
    (tmp_path / "CMakeLists.txt").write_text(project)
    shell(f"cmake -S . -B out -G Ninja -DCMAKE_PREFIX_PATH={prefix} && cmake --build out", tmp_path)
    assert shell('out/embed models/demo "Once upon a time"', tmp_path) == told_by_run


# --- migrating.md ---


def test_the_commands_of_migrating_do_what_it_says(tmp_path):
    write_repository(tmp_path / "REPOSITORY", 10, engine_dir=DEMO, tokenizer_dir=DEMO, decoupled_mode="True")
    (commands,) = of("migrating.md", "sh")
    migrate, install, of_release = lines(commands)
    assert "runs as it is" in shell(migrate, tmp_path)
    for line, release in ((install, 10), (of_release, 12)):
        shell(line, tmp_path)
        folder = tmp_path / told(line).split()[3]
        for name in ("tritonserver", "trtllm-build"):
            assert os.access(folder / "bin" / name, os.X_OK), name
        tensors = (folder / "all_models/inflight_batcher_llm/tensorrt_llm/config.pbtxt").read_text()
        assert ('"decoder_input_ids"' in tensors) == (release == 12)


# --- production.md ---


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("production")
    repository = write_light_repository(folder / "models")
    options = ("--http-allowed-host", "inference.example.org")
    with serving(folder, repository, *options, max_kv_tokens=None) as running:
        yield running


def test_the_block_of_nginx_passes_requests_on(server, tmp_path):
    if NGINX is None:
        pytest.skip("this machine has no nginx (scripts/install_deps.sh ci)")
    (block,) = of("production.md", "nginx")
    root = make_root(tmp_path, "root")
    pair = make_leaf(tmp_path, "inference", root, names=("DNS:inference.example.org",))
    address = f"unix:{tmp_path}/https.sock"
    for written, here in (
        ("127.0.0.1:8000", server.http), ("listen 443 ", f"listen {address} "), ("/etc/ssl/inference.pem", pair.certificate),
        ("/etc/ssl/private/inference.key", pair.key),
    ):  # fmt: skip
        assert written in block
        block = block.replace(written, str(here))
    temporary = "".join(f"{kind}_temp_path {tmp_path};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {tmp_path}/pid; error_log {tmp_path}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{block}}}\n"
    )
    process = subprocess.Popen([NGINX, "-c", tmp_path / "nginx.conf", "-p", tmp_path], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (tmp_path / "https.sock").exists():
            assert time.monotonic() < deadline and process.poll() is None, process.stderr.read()
            time.sleep(0.02)
        asked = ["curl", "-sS", "--fail-with-body", "--cacert", str(root.certificate), "--unix-socket", f"{tmp_path}/https.sock"]
        url = "https://inference.example.org/v2"
        body = '{"inputs": [{"name": "INPUT0", "shape": [1], "datatype": "BYTES", "data": ["echo"]}]}'
        for more in ([f"{url}/health/ready"], [f"{url}/models/identity/infer", "-d", body]):
            done = subprocess.run([*asked, *more], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        assert '"echo"' in done.stdout
        other = subprocess.run([*asked, "https://inference.example.org/v1/models"], capture_output=True, timeout=60, check=False)
        assert other.returncode != 0  # the block passes /v2/ alone
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def can_have_its_own_etc():
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(
    not can_have_its_own_etc(), reason="needs root that may make a mount namespace, in which /etc is a copy; CI's may"
)
def test_the_service_is_set_up_as_production_says(tmp_path):
    """With a copy of /etc, so that the machine stays as it is."""
    (block,) = of("production.md", "sh")
    assert len(lines(block)) == 5
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore_dangling_symlinks=True)
    script = f"mount --bind {tmp_path}/etc /etc\n" + "\n".join(lines(block)) + (
        "\nstat -c '%U %G %a %n' /etc/inflight/keys /etc/inflight/serve.json /etc/systemd/system/inflight.service"
        "\nruser() { setpriv --reuid inflight --regid inflight --clear-groups \"$@\"; }"
        "\nruser cat /etc/inflight/keys"
    )  # fmt: skip
    done = subprocess.run(
        ["unshare", "-m", "bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env={**NO_GPU, "PATH": f"{PATH}:/usr/sbin:/sbin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *stats, keys = done.stdout.splitlines()
    assert stats == [
        "root inflight 640 /etc/inflight/keys", "root root 644 /etc/inflight/serve.json",
        "root root 644 /etc/systemd/system/inflight.service",
    ]  # fmt: skip
    assert re.fullmatch("sha256:[0-9a-f]{64}", keys)
    key = re.search(r"^key +(\S+)$", done.stderr, re.MULTILINE).group(1)
    assert key not in keys
    (tmp_path / "keys").write_text(keys + "\n")
    with serving(
        tmp_path, write_light_repository(tmp_path / "models"), "--api-key-file", tmp_path / "keys", max_kv_tokens=None
    ) as own:
        headers = {"Authorization": f"Bearer {key}"}
        asked = urllib.request.Request(f"http://{own.http}/v2/models/identity", headers=headers)
        assert urllib.request.urlopen(asked, timeout=30).status == 200


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="this machine has no systemd-analyze (scripts/install_deps.sh ci)"
)
def test_systemd_understands_the_unit_with_the_devices(tmp_path):
    (block,) = of("production.md", "ini")
    unit = (ROOT / "deploy/systemd/inflight.service").read_text().replace("/usr/local/bin/inflight", str(INFLIGHT))
    (tmp_path / "inflight.service").write_text(unit)
    (tmp_path / "inflight.service.d").mkdir()
    (tmp_path / "inflight.service.d/override.conf").write_text(block)
    analyze = ["systemd-analyze", "verify", tmp_path / "inflight.service"]
    done = subprocess.run(analyze, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "inflight.service.d/override.conf").write_text(block + "NoSuchDirective=1\n")
    assert "NoSuchDirective" in subprocess.run(analyze, capture_output=True, text=True, timeout=60, check=False).stderr


# Those of container engines.
ENGINES = {"--cap-drop", "--security-opt", "--memory", "--ulimit"}


def test_options_that_production_names_are_options_of_the_server():
    known = set(re.findall(r"^\| `(--[\w-]+)`", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE))
    page = (ROOT / "docs/production.md").read_text()
    named = {flag for code in re.findall(r"`([^`\n]+)`", page) for flag in re.findall(r"(?<![\w-])--[a-z][\w-]+", code)}
    assert len(named) > 20
    assert named - known == ENGINES
