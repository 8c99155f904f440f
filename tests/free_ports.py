# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that a test starts, and that can't say themselves which one they got."""

import contextlib
import pathlib
import random
import socket


def end_of_ports():
    """Of those that the kernel gives to no connection: one of its own could be taken by a client before it is listened on."""
    return int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


def free_ports(count):
    """Ports of loopback that are free now, all different."""
    with contextlib.ExitStack() as held:
        ports = []
        while len(ports) < count:
            one = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # in use
                one.bind(("127.0.0.1", random.randrange(end_of_ports() // 2, end_of_ports())))
                ports.append(one.getsockname()[1])
        return ports


def free_port():
    return free_ports(1)[0]
