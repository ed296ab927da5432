"""The fixture of what has native paths: `awake`."""

from __future__ import annotations

import pytest

from fnx.api import native, promote


@pytest.fixture(scope="module")
def awake():
    """Paths are made after few calls, where there are any."""
    if native.maker() is None:
        pytest.skip("this interpreter has no native calls")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promote, "_FIRST_GAP", 2)
        promote.forget()
        yield
    promote.forget()
