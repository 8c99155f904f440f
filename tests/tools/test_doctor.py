# SPDX-License-Identifier: Apache-2.0
"""`inflight doctor` on this machine, and where a limit or a port is not as a server needs it."""

import json
import os
import resource
import socket

from command import error, run

NO_PORTS = ("--http-port", "0", "--grpc-port", "0", "--metrics-port", "0")


def examined(*args, **kwargs):
    """(exit status, {subject: finding})."""
    done = run("doctor", "--json", *args, check=False, **kwargs)
    report = json.loads(done.stdout)
    for verdict in ("advice", "fault"):
        counted = sum(finding["verdict"] == verdict for finding in report["findings"])
        assert counted == report["faults" if verdict == "fault" else "advice"]
    assert done.returncode == (1 if report["faults"] else 0)
    return done.returncode, {finding["subject"]: finding for finding in report["findings"]}


def test_what_it_finds_is_what_the_system_says():
    _, found = examined(*NO_PORTS)
    assert os.uname().release in found["system"]["found"]
    assert f"of {os.cpu_count()} may be used" in found["cores"]["found"]
    with open("/proc/cpuinfo") as cpuinfo:
        flags = next((line for line in cpuinfo if line.startswith("flags")), "").split()
    assert ("AVX2" in found["CPU"]["found"].split(", ")) == ({"avx2", "fma", "f16c"} <= set(flags))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert found["open files"]["found"] == ("unlimited" if hard == resource.RLIM_INFINITY else f"{hard} at once")
    assert not [subject for subject in found if subject.endswith("port")]


def test_a_port_in_use_is_a_fault_and_a_free_one_is_none():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        status, found = examined("--http-port", number, "--grpc-port", "0", "--metrics-port", "0")
    assert status == 1
    assert found["HTTP port"]["found"] == f"{number}: Address already in use"
    assert "--http-port" in found["HTTP port"]["remedy"]
    with socket.socket() as bound:  # nobody listens, and nobody else gets it
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        number = bound.getsockname()[1]
        _, found = examined("--http-port", number, "--grpc-port", "0", "--metrics-port", "0")
    assert found["HTTP port"] == {"subject": "HTTP port", "verdict": "ok", "found": f"{number} is free"}


def test_a_low_limit_of_open_files_is_a_fault_with_a_remedy():
    lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))  # noqa: E731
    status, found = examined(*NO_PORTS, preexec_fn=lower)
    assert status == 1
    assert found["open files"]["verdict"] == "fault"
    assert "LimitNOFILE=" in found["open files"]["remedy"]


def test_text_has_a_line_for_each_finding_and_one_for_each_remedy():
    lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))  # noqa: E731
    done = run("doctor", *NO_PORTS, check=False, preexec_fn=lower)
    lines = done.stdout.splitlines()
    at = next((index for index, line in enumerate(lines) if line.startswith("fault   open files")), None)
    assert at is not None, (done.returncode, done.stdout, done.stderr)
    assert lines[at + 1].strip().startswith("-> a connection is one")


def test_arguments_are_refused():
    assert "unexpected argument 'x'" in error("doctor", "x")
    assert "0 to 65535" in error("doctor", "--http-port", "70000")
    assert "address: got 'localhost', an IP address is needed" in error("doctor", "--address", "localhost")
