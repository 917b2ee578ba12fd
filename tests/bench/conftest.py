"""Marks every bench as slow; each prints its figures beside a baseline."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/bench/" in item.path.as_posix():
            item.add_marker(pytest.mark.slow)
