import pytest

from rapid_llm.validation.cases import split_of


@pytest.mark.parametrize(
    ("key", "side"),
    [
        ("korthikanti-22B", "unseen"),
        ("korthikanti-175B", "unseen"),
        ("korthikanti-530B", "unseen"),
        ("korthikanti-1T", "unseen"),
        ("narayanan-1.7B", "fit"),
        ("narayanan-39B", "unseen"),
        ("vtrain-single/h1024-l24", "fit"),
        ("vtrain-single/h1024-l16", "unseen"),
        ("vtrain-single/h2048-l12", "unseen"),
        ("vtrain-single/h2048-l20", "fit"),
        ("uci-a100", "unseen"),
    ],
)
def test_the_split_rule_never_moves(key, side):
    assert split_of(key) == side
