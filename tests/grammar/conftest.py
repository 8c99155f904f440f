# SPDX-License-Identifier: Apache-2.0
import pytest
from grammar_driver import Driver


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()
