# SPDX-License-Identifier: Apache-2.0
"""The servers that the recorded exchanges are replayed against, started when a case first asks for one."""

import pytest
from recorded_cases import Servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    running = Servers(tmp_path_factory.mktemp("recorded"))
    yield running
    running.stop()
