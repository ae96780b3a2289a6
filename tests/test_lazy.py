"""What waits until it is asked for, and what is made by the dozen."""

from dataclasses import FrozenInstanceError

import pytest

from rapid_llm.dtypes import precision
from rapid_llm.lazy import Later
from rapid_llm.nouns import light, replaced, shared


def test_a_value_is_worked_out_when_asked_and_once():
    asked = []
    one = Later(lambda: asked.append(1) or len(asked))
    assert not asked
    assert (one.value, one.value, len(asked)) == (1, 1, 1)


def test_values_to_come_are_equal_where_they_are():
    assert Later(lambda: [1, 2]) == Later(lambda: [1, 2])
    assert Later(lambda: [1, 2]) != Later(lambda: [1])
    assert repr(Later(lambda: "here")) == "'here'"


def test_equal_nouns_are_shared():
    first, second = precision("bf16"), precision("bf16")
    assert first is not second
    assert shared(first) is shared(second)
    with pytest.raises(FrozenInstanceError):
        first.compute = "fp8"


def test_a_light_table_is_replaced_and_not_compared_by_value():
    @light
    class Table:
        size: float
        count: float = 1.0

    one = Table(2.0)
    assert (replaced(one, count=3.0).size, replaced(one, count=3.0).count, one.count) == (2.0, 3.0, 1.0)
    assert one != Table(2.0)
    assert len({one, Table(2.0)}) == 2
