#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints, for each attack of test_survival.py and test_memory_budget.py and for each protocol, how long a well-formed request
took beside it and what memory the server took at most.

usage: INFLIGHT_BIN_DIR=build/release/bin .venv/bin/python tests/load/run_survival.py [--seconds 5] [--full] [--only NAME...]

Each attack goes on for so many seconds, again and again, while one process for each protocol asks each 100 ms (pulse.py). A
row is within its bounds where the slowest of these took at most twice the median alone and 50 ms, all were answered, and the
process's peak grew by at most the budget of request memory and 100 MiB. Attackers, which would be other machines, run at a
lower priority (--nice 0: at the same). The exit status is 1 where a row is not within its bounds.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "protocol"))

import pulse

MIB = 1 << 20
BUDGET = 128 * MIB
SLACK = 100 * MIB
ADDED_S = 0.05
NUM_ALONE = 100
NO_ATTACK = "no attack"  # whose row says how quiet the machine is
ROW = "{:<30} {:<5} {:>9} {:>9} {:>9} {:>6} {:>9} {:>11}  {}"
HEAD = ROW.format("attack", "over", "alone ms", "worst ms", "bound ms", "asked", "peak MiB", "budget MiB", "")


@contextlib.contextmanager
def pulses(server, beats):
    running = {}
    try:
        for protocol, make in beats.items():
            running[protocol] = pulse.Pulse(make, getattr(server, protocol))
        yield running
    finally:
        for one in running.values():
            one.close()


def alone(running):
    """Medians without an attack, in seconds, while both protocols ask."""
    for one in running.values():
        one.start()
    time.sleep(NUM_ALONE * pulse.PERIOD_S)
    return {protocol: statistics.median(one.stop().seconds) for protocol, one in running.items()}


def under(attack, server, running, seconds):
    """What became of the requests, by how many bytes the server grew at most, and what the attack complains of."""
    from server_counts import forget_peak, peak_rss_bytes, rss_bytes

    forget_peak(server.process.pid)
    before = rss_bytes(server.process.pid)
    for one in running.values():
        one.start()
    complaint = None
    until = time.monotonic() + seconds
    while complaint is None:
        try:
            attack(server)
        except Exception as failure:  # the others are measured all the same
            complaint = repr(failure)[:200]
        if time.monotonic() >= until:
            break
    beats = {protocol: one.stop() for protocol, one in running.items()}
    return beats, max(0, peak_rss_bytes(server.process.pid) - before), complaint


def row_of(name, protocol, beats, alone_s, grown, complaint):
    bound_s = 2 * alone_s + ADDED_S
    worst_s = max(beats.seconds)
    wrong = [f"{len(beats.problems)} not answered: {beats.problems[0]}"] if beats.problems else []
    wrong += [f"attack: {complaint}"] if complaint else []
    wrong += ["slow"] if worst_s > bound_s else []
    wrong += ["large"] if grown > BUDGET + SLACK else []
    ms = [f"{1000 * one:.1f}" for one in (alone_s, worst_s, bound_s)]
    sizes = [f"{grown / MIB:.0f}", f"{BUDGET / MIB:.0f} + {SLACK / MIB:.0f}"]
    print(ROW.format(name, protocol, *ms, len(beats.seconds), *sizes, "; ".join(wrong)), flush=True)
    return not wrong


def run(server, attacks, beats, asked):
    """Whether all rows are within their bounds."""
    is_good = True
    with pulses(server, beats) as running:
        alone_s = alone(running)
        os.nice(asked.nice)  # of this process, which attacks: server and pulses are there
        for name, attack in {NO_ATTACK: lambda server: time.sleep(asked.seconds), **attacks}.items():
            if asked.only and name not in (*asked.only, NO_ATTACK):
                continue
            found, grown, complaint = under(attack, server, running, asked.seconds)
            for protocol, one in found.items():
                is_good &= row_of(name, protocol, one, alone_s[protocol], grown, complaint)
            if server.process.poll() is not None:
                print(f"the server ended by itself:\n{server.log.read_text()[-4000:]}")
                return False
    return is_good


def on_light_models(asked, folder):
    """Attacks on connections, frames and streams of models without weights."""
    import test_survival as survival
    from light_models import write_light_repository
    from live_server import start_server

    def of(attack, ci, full):
        return lambda server: attack(server, full if asked.full else ci)

    attacks = {name: of(*what) for name, what in {**survival.ATTACKS, **survival.GRPC_ATTACKS}.items()}
    server = start_server(
        folder, None, "--model-repository", write_light_repository(folder / "repository"),
        f"--http-max-connections={survival.max_connections()}", "--http-header-timeout-ms=1500", "--http-body-timeout-ms=1500",
        "--http-max-input-size=1048576", "--grpc-max-input-size=1048576",
        f"--grpc-max-connections={survival.MAX_GRPC_CONNECTIONS}", f"--request-memory-byte-size={BUDGET}", max_kv_tokens=None,
    )  # fmt: skip
    try:
        return run(server, attacks, {"http": pulse.echo_over_http, "grpc": pulse.echo_over_grpc}, asked)
    finally:
        server.stop()


def on_the_demo_model(asked, folder):
    """Attacks on memory."""
    import test_memory_budget as budget
    from live_server import DEMO, start_server

    attacks = {attack.__name__: attack for attack in budget.HTTP + budget.GRPC}
    server = start_server(folder, DEMO, *budget.OPTIONS)
    try:
        return run(server, attacks, {"http": pulse.prompt_over_http, "grpc": pulse.prompt_over_grpc}, asked)
    finally:
        server.stop()


PARTS = {"light": on_light_models, "demo": on_the_demo_model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="of each attack")
    parser.add_argument("--full", action="store_true", help="the sizes of INFLIGHT_SURVIVAL=full")
    parser.add_argument("--only", nargs="+", help="names of attacks")
    parser.add_argument("--nice", type=int, default=10, help="of the attackers")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)  # in a process whose priority it may lower
    asked = parser.parse_args()
    if asked.full:
        os.environ["INFLIGHT_SURVIVAL"] = "full"  # before the tests are imported
    if asked.part:
        with tempfile.TemporaryDirectory() as folder:
            return 0 if PARTS[asked.part](asked, pathlib.Path(folder)) else 1
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{HEAD}", flush=True)
    return max(subprocess.run([sys.executable, *sys.argv, "--part", part], check=False).returncode for part in PARTS)


if __name__ == "__main__":
    sys.exit(main())
