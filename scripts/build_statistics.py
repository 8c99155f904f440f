#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says what a build cost: by ninja's log, which has the begin and the end of each command, and its graph.

usage: scripts/build_statistics.py BUILD [--before OTHER] [--top N] [--cores N]

  total       seconds of all commands one after another, and the least that --cores cores (default 2) can take: the
              larger one of their share and of the critical path
  folders     seconds by folder, and how many commands
  files       the longest commands
  critical    the chain of commands each of which waits for the one before it: no number of cores makes a build shorter

With --before, the folder of another build, each number is followed by what it was there. The log has the last build of
each file. What is to be compared is built from nothing and without what ccache knows:
    rm -rf build/united && cmake --preset united && CCACHE_DISABLE=1 scripts/build.sh build/united
"""

import argparse
import collections
import dataclasses
import functools
import pathlib
import re
import sys

LOG = ".ninja_log"


@dataclasses.dataclass
class Build:
    seconds: dict[str, float]  # by the first output of a command
    needs: dict[str, list[str]]  # outputs by output, of what ninja runs


def read_log(path):
    """{output: (begin ms, end ms)}, of each the last command that wrote it."""
    if not path.exists():
        sys.exit(f"build_statistics.py: {path}: is not there; a folder that ninja has built in is needed")
    times = {}
    for line in path.read_text().splitlines()[1:]:
        fields = line.split("\t")
        if len(fields) == 5:
            times[fields[3]] = (int(fields[0]), int(fields[1]))
    return times


def words(text):
    """Paths of a line of build.ninja, in which "$ " and "$:" stand for blank and colon."""
    found = [word for word in re.split(r"(?<!\$) +", text.strip()) if word]
    return [word.replace("$ ", " ").replace("$:", ":").replace("$$", "$") for word in found]


def read_graph(path):
    """{output: (the first output of its command, inputs)}."""
    commands = {}
    text = path.read_text().replace("$\n", "") if path.exists() else ""
    for line in text.splitlines():
        if not line.startswith("build "):
            continue
        outputs, inputs = re.split(r"(?<!\$):", line.removeprefix("build "), maxsplit=1)
        made = [word for word in words(outputs) if word != "|"]
        _rule, *needed = words(inputs)
        for output in made:
            commands[output] = (made[0], [word for word in needed if word not in ("|", "||", "|@")])
    return commands


def read(folder):
    times = read_log(folder / LOG)
    commands = read_graph(folder / "build.ninja")
    seconds, needs = {}, {}
    for output, (first, inputs) in commands.items():
        begin, end = times.get(output, (0, 0))
        seconds[first] = max(seconds.get(first, 0), (end - begin) / 1000)
        needs[first] = [commands[name][0] for name in inputs if name in commands and commands[name][0] != first]
        needs[output] = needs[first]
    return Build(seconds, needs)


def folder_of(output):
    head = output.split("/CMakeFiles/", maxsplit=1)[0] if "/CMakeFiles/" in output else str(pathlib.PurePath(output).parent)
    return head.split("/CMakeFiles")[0]


def name_of(output):
    """The source of an object, for people: without CMake's folders; of a united one the target before its number."""
    name = re.sub(r"CMakeFiles/([^/]+)\.dir/Unity/", r"\1: ", output)
    return re.sub(r"CMakeFiles/[^/]+\.dir/", "", name).removesuffix(".o")


def critical_path(build):
    """The commands of the longest chain, the first one first."""
    sys.setrecursionlimit(100000)

    @functools.cache
    def longest(output):
        best = max(((longest(name)[0], name) for name in build.needs.get(output, ())), default=(0, None))
        return best[0] + build.seconds.get(output, 0), best[1]

    at = max(build.seconds, key=lambda output: longest(output)[0], default=None)
    chain = []
    while at is not None:
        if build.seconds.get(at, 0) > 0:
            chain.append(at)
        at = longest(at)[1]
    return chain[::-1]


def by_folder(build):
    sums, counts = collections.Counter(), collections.Counter()
    for output, seconds in build.seconds.items():
        if seconds > 0:
            sums[folder_of(output)] += seconds
            counts[folder_of(output)] += 1
    return sums, counts


def totals(build, cores):
    total = sum(build.seconds.values())
    critical = sum(build.seconds[output] for output in critical_path(build))
    return total, critical, max(total / cores, critical)


def line(seconds, before, what):
    print(f"{seconds:9.1f} s" + (f" {before:9.1f} s before" if before is not None else "") + f"  {what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path, metavar="OTHER")
    parser.add_argument("--top", type=int, default=15, metavar="N")
    parser.add_argument("--cores", type=int, default=2, metavar="N")
    args = parser.parse_args()
    build = read(args.build)
    other = read(args.before) if args.before else None
    former = totals(other, args.cores) if other else (None, None, None)
    total, critical, least = totals(build, args.cores)
    line(total, former[0], "all commands, one after another")
    line(critical, former[1], "the critical path")
    line(least, former[2], f"the least on {args.cores} cores")
    sums, counts = by_folder(build)
    sums_before = by_folder(other)[0] if other else {}
    print("\nfolders")
    for folder, seconds in sums.most_common(args.top):
        line(seconds, sums_before.get(folder, 0) if other else None, f"{folder} ({counts[folder]})")
    print("\nfiles")
    for output, seconds in sorted(build.seconds.items(), key=lambda item: -item[1])[: args.top]:
        line(seconds, other.seconds.get(output, 0) if other else None, name_of(output))
    print("\ncritical path")
    for output in critical_path(build):
        line(build.seconds[output], other.seconds.get(output, 0) if other else None, name_of(output))


if __name__ == "__main__":
    main()
