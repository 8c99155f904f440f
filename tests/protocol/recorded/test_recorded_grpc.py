# SPDX-License-Identifier: Apache-2.0
"""Replays the recorded gRPC exchanges of a real Triton server; README.md says how."""

import pytest
from recorded_cases import parameters, replay


@pytest.mark.parametrize("case", parameters("grpc"))
def test_case(servers, case):
    replay(case, servers.peer(case["profile"]))
