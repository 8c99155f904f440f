# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from tokenizer_driver import Driver


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()
