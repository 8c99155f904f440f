# SPDX-License-Identifier: Apache-2.0
"""The flow of the back-end's CI over a tiny GPT-2, in the folder that `inflight compat install` makes."""

from tiny_models import make_gpt2


def test_the_flow_of_the_back_ends_ci(folder):
    make_gpt2(folder.root / "gpt2")
    (folder.root / "work").mkdir()
    done = folder.sh(
        "bash ../ci/L0_backend_trtllm/test.sh ../gpt2", cwd=folder.root / "work",
        HTTP_PORT=str(folder.http), GRPC_PORT=str(folder.grpc), METRICS_PORT=str(folder.metrics),
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "*** Test Passed"
    assert done.stdout.count("[INFO] Functionality test succeed.") == 2
    assert "My name is" in done.stdout
