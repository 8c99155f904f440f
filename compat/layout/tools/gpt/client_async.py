#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""client.py by tritonclient's asynchronous calls."""

from client import main

if __name__ == "__main__":
    main(at_once=True)
