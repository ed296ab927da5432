"""The whole text of the error for each mistake of `mistakes/`."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from tests.mistakes.made import MISTAKES

for _name in ("flow", "transforming", "windows"):
    importlib.import_module(f"tests.mistakes.{_name}")


def text_of(mistake) -> str:
    """The error's text; `here:` for a place in a file of mistakes."""
    with pytest.raises(Exception) as caught:
        mistake()
    return re.sub(r"\S*mistakes\W\w+\.py:\d+", "here:", str(caught.value))


def test_there_are_as_many_as_were_promised():
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_the_text_is(mistake):
    assert text_of(mistake) == inspect.cleandoc(mistake.__doc__)
