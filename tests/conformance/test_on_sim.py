"""The conformance suite on the sim, which lacks nothing that a check needs."""

from __future__ import annotations

import pytest

from anyaccel import conformance

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("check", conformance.checks(), ids=lambda check: check.id)
def test_check(check: conformance.Check) -> None:
    check.run()
