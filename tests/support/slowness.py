"""Parametrized tests of which the telling cases run by default, and the others with `pytest -m slow` or in .ci/long."""

import pytest


def slow_but(cases, *quick):
    """The cases of a parametrized test, tuples where it takes several arguments; all but the quick ones are slow."""
    return mark_but(pytest.mark.slow, cases, *quick)


def mark_but(mark, cases, *quick):
    """The cases, of which all but the quick ones have the mark."""
    assert set(quick) <= set(cases), quick
    return [case if case in quick else pytest.param(*as_tuple(case), marks=mark) for case in cases]


def as_tuple(case):
    return case if isinstance(case, tuple) else (case,)
