# SPDX-License-Identifier: Apache-2.0
"""Stands in for the package cog where a container starts `python -m cog.server.http`."""
