# SPDX-License-Identifier: Apache-2.0
"""Completion in fish, which says what it would offer, and in zsh, at whose prompt the words are typed."""

import os
import pty
import re
import select
import shutil
import subprocess
import time

import pytest
from command import documented_flags, needs_terminal, run

needs_fish = pytest.mark.skipif(not shutil.which("fish"), reason="this machine has no fish (scripts/install_deps.sh ci)")
needs_zsh = pytest.mark.skipif(not shutil.which("zsh"), reason="this machine has no zsh (scripts/install_deps.sh ci)")


@pytest.fixture(scope="module")
def fish_script(tmp_path_factory):
    path = tmp_path_factory.mktemp("fish") / "inflight.fish"
    path.write_text(run("completion", "fish").stdout)
    return path


def fish(script, *lines):
    """What is offered at the end of each line, without descriptions."""
    asked = "".join(f"complete -C '{line}'; echo ---; " for line in lines)
    env = dict(os.environ, HOME=str(script.parent), XDG_DATA_HOME=str(script.parent))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; {asked}"],
        cwd=script.parent, env=env, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [{row.split("\t")[0] for row in part.splitlines()} for part in done.stdout.split("---\n")[:-1]]


@needs_fish
def test_fish_offers_commands_flags_and_values(fish_script):
    commands, flags, values, shells, benches, of_load, refused = fish(
        fish_script, "inflight tok", "inflight serve --http-po", "inflight run DIR --dtype bf", "inflight completion ",
        "inflight bench thr", "inflight bench load --request-ra", "inflight serve --host-po",
    )  # fmt: skip
    assert commands == {"tokenize"}
    assert flags == {"--http-port"}
    assert values == {"bfloat16"}
    assert shells == {"bash", "zsh", "fish"}
    assert benches == {"throughput"}
    assert of_load == {"--request-rate"}
    assert refused == set()


@needs_fish
def test_fish_offers_every_documented_flag(fish_script):
    documented = documented_flags()
    offered = fish(fish_script, *(f"inflight {name} --" for name in documented))
    for (name, flags), found in zip(documented.items(), offered, strict=True):
        assert found == flags | {"--config", "--help"}, name


def test_zsh_has_a_specification_of_every_documented_flag():
    script = run("completion", "zsh").stdout
    for name, flags in documented_flags().items():
        case = re.search(rf"^    '{name}'\)\n(.*?) ;;$", script, re.MULTILINE | re.DOTALL).group(1)
        assert set(re.findall(r"^ +'\*(--[a-z0-9-]+)=?\[", case, re.MULTILINE)) == flags | {"--config", "--help"}, name


class Zsh:
    """A shell at a terminal, whose `inflight` prints the arguments that it was called with."""

    def __init__(self, folder):
        (folder / "_inflight").write_text(run("completion", "zsh").stdout)
        self.terminal, end = pty.openpty()
        env = dict(os.environ, HOME=str(folder), TERM="dumb", PS1="", ZDOTDIR=str(folder))
        self.process = subprocess.Popen(
            ["zsh", "-f", "-i"], cwd=folder, env=env, stdin=end, stdout=end, stderr=end, start_new_session=True
        )
        os.close(end)
        self.send(f"fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; inflight() {{ print -r -- \"<<$*>>\" }}\n")

    def send(self, text):
        os.write(self.terminal, text.encode())

    def completed(self, line):
        """The arguments after the key Tab and the key Enter."""
        self.send(line + "\t\n")
        seen, deadline = "", time.monotonic() + 60
        while not (found := re.search(r"<<([^$>]*)>>", seen)):
            assert time.monotonic() < deadline, seen
            if select.select([self.terminal], [], [], 1)[0]:
                seen += os.read(self.terminal, 65536).decode(errors="replace")
        return found.group(1).split()

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@needs_zsh
@needs_terminal
def test_zsh_completes_commands_flags_and_values(tmp_path):
    zsh = Zsh(tmp_path)
    try:
        assert zsh.completed("inflight tok") == ["tokenize"]
        assert zsh.completed("inflight serve --http-po")[-1].rstrip("=") == "--http-port"
        assert zsh.completed("inflight run DIR --dtype bf") == ["run", "DIR", "--dtype", "bfloat16"]
        assert zsh.completed("inflight completion fi") == ["completion", "fish"]
        assert zsh.completed("inflight bench thr") == ["bench", "throughput"]
        assert zsh.completed("inflight bench load --request-ra")[-1].rstrip("=") == "--request-rate"
    finally:
        zsh.end()
