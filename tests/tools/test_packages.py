# SPDX-License-Identifier: Apache-2.0
"""Packages of scripts/packages.py, made of this build: equal bytes twice, and each answers once it is unpacked or installed.

A bare machine that installs them, and is bare again afterwards, is described in docs/installing.md.
"""

import hashlib
import json
import os
import re
import shutil
import socket
import sys
import tarfile
import threading

import pytest
from command import BUILD, NO_GPU, ROOT, call, run
from package_marks import MARKS

PROMPT = "What is 27 + 54?"
EPOCH = "1700000000"
pytestmark = MARKS


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    path = tmp_path_factory.mktemp("stage") / "prefix"
    env = dict(os.environ, SOURCE_DATE_EPOCH=EPOCH)
    call("cmake", "--install", BUILD, "--component", "program", "--strip", "--prefix", path, env=env)
    return path


def packaged(stage, folder, **kwargs):
    env = dict(os.environ, SOURCE_DATE_EPOCH=EPOCH, **kwargs.pop("env", {}))
    call(sys.executable, ROOT / "scripts/packages.py", stage, "--output", folder, "--level", "0", env=env, **kwargs)
    return folder


@pytest.fixture(scope="module")
def dist(stage, tmp_path_factory):
    return packaged(stage, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def answer():
    return run("run", ROOT / "models/demo", "--prompt", PROMPT, env=NO_GPU).stdout


def only(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


def test_two_runs_give_equal_bytes(stage, dist, tmp_path):
    """The second of a copy elsewhere with other times, in another time zone, under another umask."""
    copy = shutil.copytree(stage, tmp_path / "copy", copy_function=shutil.copy)
    other = packaged(copy, tmp_path / "other", env={"TZ": "Asia/Tokyo", "LC_ALL": "C"}, umask=0o077)
    assert sorted(path.name for path in other.iterdir()) == sorted(path.name for path in dist.iterdir())
    assert len(list(dist.iterdir())) == 5
    for path in dist.iterdir():
        assert path.read_bytes() == (other / path.name).read_bytes(), path.name


def test_sums_are_those_of_the_files(dist):
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 4
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest


def test_cudas_licence_is_of_the_host_that_the_program_is_for(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import machines
    import packages

    monkeypatch.setattr(machines, "ROOT", tmp_path)
    other = machines.Machine("other", "other")
    (tmp_path / "build/other-root/usr/local/cuda").mkdir(parents=True)
    with pytest.raises(SystemExit, match="its copyright file is nowhere"):
        packages.copyright_of("libcudart_static.a", other)
    (other.root / "usr/local/cuda/EULA.txt").write_text("terms")
    assert packages.copyright_of("libcudart_static.a", other) == "terms"


def test_the_tarball_runs_where_it_is_unpacked(dist, tmp_path, answer):
    with tarfile.open(only(dist, "*.tar.gz")) as archive:
        members = archive.getmembers()
    call("tar", "xf", only(dist, "*.tar.gz"), "-C", tmp_path)
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "root", int(EPOCH))}
    prefix = only(tmp_path, "inflight-*")
    prompt = ("--prompt", PROMPT)
    assert call(prefix / "bin/inflight", "run", prefix / "share/inflight/demo", *prompt, env=NO_GPU) == answer
    page = (prefix / "share/man/man1/inflight-serve.1").read_text()
    assert page == run("man", "serve").stdout
    assert (prefix / "share/bash-completion/completions/inflight").read_text() == run("completion", "bash").stdout
    assert (prefix / "share/zsh/site-functions/_inflight").read_text() == run("completion", "zsh").stdout
    assert (prefix / "share/fish/vendor_completions.d/inflight.fish").read_text() == run("completion", "fish").stdout
    assert "Apache License" in (prefix / "share/doc/inflight/LICENSE").read_text()
    others = (prefix / "share/doc/inflight/THIRD-PARTY.txt").read_text()
    assert "\nnlohmann-json3-dev " in others and "Permission is hereby granted" in others


@pytest.fixture(scope="module")
def unpacked(dist, tmp_path_factory):
    root = tmp_path_factory.mktemp("deb")
    call("dpkg-deb", "--raw-extract", only(dist, "*.deb"), root)
    return root


@pytest.mark.parametrize(
    ("package", "other", "status"),
    [("inflight", "inflight-cuda", "installed"), ("inflight-cuda", "inflight", "installed"),
     ("inflight", "inflight-cuda", "config-files"), ("inflight-cuda", "inflight", "")],
)  # fmt: skip
def test_a_purge_leaves_what_the_other_program_has(package, other, status, tmp_path):
    # Nothing is removed: all programs of the script's path are these.
    for name, line in {
        "dpkg-query": f'[ "$4" = {other} ] && echo {status}',
        "grep": 'read line; [ "$line" = installed ] && [ "$1 $2" = "-qx installed" ]',
        "getent": "false",
        "rm": f'echo "$@" >>{tmp_path}/removed',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": str(tmp_path), "DPKG_MAINTSCRIPT_PACKAGE": package}
    call("/bin/sh", ROOT / "deploy/debian/postrm", "purge", env=env)
    removed = tmp_path / "removed"
    assert removed.exists() == (status != "installed")
    if removed.exists():
        assert removed.read_text().splitlines() == [
            "-rf /etc/inflight /var/log/inflight /var/cache/inflight", "-rf /var/lib/inflight"]  # fmt: skip


def test_the_debian_package_answers(unpacked, answer):
    prompt = ("--prompt", PROMPT)
    assert call(unpacked / "usr/bin/inflight", "run", unpacked / "usr/share/inflight/demo", *prompt, env=NO_GPU) == answer
    assert call("gzip", "-cd", unpacked / "usr/share/man/man1/inflight.1.gz") == run("man").stdout


def test_the_debian_package_is_described(dist, unpacked):
    deb = only(dist, "*.deb")
    field = lambda name: call("dpkg-deb", "--field", deb, name).strip()  # noqa: E731
    assert field("Package") == "inflight"
    assert f"inflight {field('Version')}" == run("--version").stdout.strip()
    functions = call("objdump", "-T", unpacked / "usr/bin/inflight")
    newest = max(int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", functions))
    assert f"libc6 (>= 2.{newest})" in field("Depends")
    assert (unpacked / "DEBIAN/conffiles").read_text().split() == ["/etc/inflight/serve.json"]
    listed = call("dpkg-deb", "--contents", deb).splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    assert all(line.startswith(("drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--")) for line in listed)
    sums = dict(reversed(line.split("  ")) for line in (unpacked / "DEBIAN/md5sums").read_text().splitlines())
    files = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert set(sums) == {name for name in files if not name.startswith("DEBIAN/")}
    for name, digest in sums.items():
        assert hashlib.md5((unpacked / name).read_bytes(), usedforsecurity=False).hexdigest() == digest


def test_the_unit_starts_the_program_of_the_package(unpacked):
    unit = (unpacked / "usr/lib/systemd/system/inflight.service").read_text()
    program, *arguments = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE).group(1).split()
    assert os.access(unpacked / program[1:], os.X_OK)
    assert (unpacked / arguments[-1][1:]).is_file()
    assert "/usr/local" not in unit


def test_scripts_of_the_debian_package_are_shell(unpacked):
    for script in ("postinst", "prerm", "postrm"):
        call("sh", "-n", unpacked / "DEBIAN" / script)
        assert os.access(unpacked / "DEBIAN" / script, os.X_OK)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment of Python without anything in it."""
    folder = tmp_path_factory.mktemp("venv") / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder


def listed(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


SCRIPT = """
import inflight, os, sys, urllib.request
os.environ["http_proxy"] = "http://127.0.0.1:9"  # where nobody listens
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with inflight.Server(None, "--device", "cpu") as server:
    answer = server.generate(sys.argv[1], max_tokens=64)
    assert answer.outputs["model_name"] == "ensemble"
    pieces = [piece.text for piece in server.stream(sys.argv[1], max_tokens=64)]
    assert len(pieces) > 1 and "".join(pieces) == answer.text, pieces
    assert server.client.is_ready() and "tensorrt_llm" in server.client.models()
    assert b"nv_inference" in direct.open(server.metrics_url).read()
    assert "Started HTTPService" in server.log()
    for refused in (lambda: server.generate("x", max_tokens=-1), lambda: server.generate("x", model="none"),
                    lambda: list(server.stream("x", max_tokens=-1))):
        try:
            refused()
            raise SystemExit("not refused")
        except inflight.InflightError as error:
            assert 400 <= error.status < 500 and str(error), error
    client, process = server.client, server._process
assert process.poll() == 0, process.poll()
assert not client.is_ready()
try:
    inflight.Server("/nowhere").start()
    raise SystemExit("started")
except inflight.InflightError as error:
    assert "/nowhere" in str(error), error
try:
    inflight.Server(None, "--http-use-ssl=true")
    raise SystemExit("TLS is not refused")
except ValueError as error:
    assert "--http-use-ssl" in str(error), error
with inflight.Server(inflight.demo_model(), "--device", "cpu", "--allow-metrics", "false", "--config", sys.argv[2]) as server:
    assert server.url.endswith(":" + sys.argv[3]), server.url
    try:
        raise SystemExit(server.metrics_url)
    except inflight.InflightError as error:
        assert "metrics" in str(error), error
print(answer.text)
"""

CLIENT_OF_A_STRANGER = """
import inflight, sys
client = inflight.Client(sys.argv[1])
assert not client.is_ready() or sys.argv[2] == "200"
for ask in (lambda: client.generate("x"), client.models, lambda: list(client.stream("x"))):
    try:
        ask()
        raise SystemExit("no error")
    except inflight.InflightError as error:
        assert error.status == 0, error
"""


@pytest.mark.parametrize(
    ("answer_of_a_stranger", "status"),
    [
        (b"SSH-2.0-server\r\n", "0"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: {", "200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ndata: {", "200"),
    ],
)
def test_a_server_that_is_another_one_is_an_error_of_the_client(answer_of_a_stranger, status):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(answer_of_a_stranger)

        threading.Thread(target=answer, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        call(sys.executable, "-c", CLIENT_OF_A_STRANGER, url, status, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        listener.shutdown(socket.SHUT_RDWR)


def test_the_wheel_brings_the_program_and_a_client_and_takes_them_away(dist, environment, answer, tmp_path):
    python = environment / "bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    before = listed(environment)
    call(*pip, "install", "--no-index", only(dist, "*.whl"))
    env = {key: value for key, value in NO_GPU.items() if key not in ("INFLIGHT", "PYTHONPATH")}
    assert call(environment / "bin/inflight", "--version") == run("--version").stdout
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = tmp_path / "serve.json"
    config.write_text(json.dumps({"http_port": port}))
    script = (python, "-W", "error", "-c", SCRIPT, PROMPT, config, str(port))
    assert call(*script, env=env).strip() == answer.strip()
    assert call(*pip, "list").splitlines()[-1].split() == ["inflight", run("--version").stdout.split()[1]]
    call(*pip, "uninstall", "--yes", "inflight")
    assert listed(environment) == before
