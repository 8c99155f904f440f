#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmark_core_model.py under the name that it had at 0.5."""

from benchmark_core_model import main

if __name__ == "__main__":
    main()
