"""Every way to run a collective, recipes of one's own, and exchanges of unequal messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.errors import InputError
from rapid_llm.network import Fabric, price
from rapid_llm.network.candidates import candidates
from rapid_llm.network.recipes import read_recipe
from rapid_llm.network.uneven import price_matrix

from .toys import fabric, leaf, library, node

S = 64e6
DGX = Fabric.of(hardware.system("dgx-h100"))
RECIPE = """\
ops: [all_reduce]
phases:
  - {pattern: pair, repeat: log2(n), distance: 2**t, load: 1 / 2**(t + 1)}
  - {pattern: pair, repeat: log2(n), distance: n // 2**(t + 1), load: 2**t / n}
"""


def test_the_first_candidate_is_what_is_priced():
    found = candidates("all_reduce", S, 64, fabric=DGX, library="nccl")
    assert found[0].seconds == pytest.approx(price("all_reduce", S, 64, 1, fabric=DGX, library="nccl").seconds)
    assert [c.seconds for c in found] == sorted(c.seconds for c in found)
    assert {c.algorithm for c in found} == {"ring", "tree", "nvls-tree"}


def test_traffic_by_tier():
    ring = next(c for c in candidates("all_reduce", S, 64, fabric=DGX, library="nccl") if c.algorithm == "ring")
    assert [t.tier for t in ring.traffic] == ["node", "leaf"]
    assert ring.traffic[0].bytes == ring.sent == pytest.approx(2 * S * 63 / 64)
    assert ring.traffic[1].bytes == pytest.approx(ring.sent / 8)


def test_an_algorithm_that_the_library_does_not_have():
    (found, *_) = candidates("all_gather", S, 8, fabric=fabric(), library=library("ring"), algorithm="halving-doubling")
    assert found.seconds == pytest.approx(S * 7 / 8 / 100e9)


def test_a_recipe_is_the_algorithm_that_it_writes(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE)
    recipe = read_recipe(file)
    for group, place in ((8, fabric(node(latency=1e-6))), (64, DGX)):
        mine, known = (
            candidates("all_reduce", S, group, fabric=place, library=library("ring"), algorithm=a)[0]
            for a in (recipe, "halving-doubling")
        )
        assert mine.seconds == pytest.approx(known.seconds)
        assert mine.sent == pytest.approx(known.sent)


@pytest.mark.parametrize(
    ("repeat", "sentence"),
    [
        ("log2(n)", "on 48 ranks: repeat 'log2(n)' is 5.58, which is not whole; try ceil or floor of it."),
        ("ceil(log2(n))", "on 48 ranks: pairs 16 apart leave ranks without a partner."),
    ],
)
def test_a_recipe_that_does_not_fit_the_ranks_is_refused(tmp_path, repeat, sentence):
    file = tmp_path / "mine.yaml"
    file.write_text(RECIPE.replace("log2(n)", repeat))
    with pytest.raises(InputError) as caught:
        candidates("all_reduce", S, 48, fabric=DGX, library=library("ring"), algorithm=read_recipe(file))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ops: [all_reduce]\nphases: [{pattern: wheel, load: 1}]", "pattern 'wheel' is unknown"),
        ("ops: [reduce]\nphases: [{pattern: ring, load: 1}]", "collective 'reduce' is unknown"),
        ("ops: [all_reduce]\nphases: [{pattern: ring, load: m / n}]", "'m / n' is not an expression in n, inner"),
        ("ops: [all_reduce]\nphases: [{pattern: ring, load: __import__('os')}]", "is not an expression"),
        ("ops: [all_reduce]\nphases: [{pattern: ring, lod: 1}]", "load"),
    ],
)
def test_a_wrong_recipe_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_recipe(file)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_of_algorithms():
    with pytest.raises(InputError, match=r"^algorithm 'rings' is unknown\. Did you mean 'ring'\?"):
        candidates("all_reduce", S, 8, fabric=DGX, library="nccl", algorithm="rings")
    with pytest.raises(InputError, match=r"^algorithm 'pxn' does not run all_reduce; it runs all_to_all\.$"):
        candidates("all_reduce", S, 8, fabric=DGX, library="nccl", algorithm="pxn")
    with pytest.raises(InputError) as caught:
        candidates("all_reduce", S, 12, fabric=DGX, library="nccl", algorithm="halving-doubling")
    assert str(caught.value) == (
        "algorithm 'halving-doubling' cannot run on these 12 ranks: it needs powers of two on every tier."
    )


@pytest.mark.parametrize("ranks", [2, 8, 16, 512])
def test_equal_messages_cost_as_an_all_to_all(ranks):
    (even, *_) = candidates("all_to_all", S, ranks, fabric=DGX, library="nccl", algorithm="direct")
    got = price_matrix(np.full((ranks, ranks), S / ranks), fabric=DGX, library="nccl")
    assert got.seconds == pytest.approx(even.seconds)


@given(seed=st.integers(0, 1000))
def test_a_larger_message_is_never_faster_and_renaming_ranks_of_a_node_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    messages = rng.uniform(0, 1e7, (16, 16))
    before = price_matrix(messages, fabric=DGX, library="nccl")
    i, j = rng.integers(0, 16, 2)
    grown = messages.copy()
    grown[i, j] *= 10
    assert price_matrix(grown, fabric=DGX, library="nccl").seconds >= before.seconds
    order = np.concatenate([rng.permutation(8), 8 + rng.permutation(8)])
    renamed = price_matrix(messages[np.ix_(order, order)], fabric=DGX, library="nccl")
    assert renamed.seconds == pytest.approx(before.seconds)


def test_the_busiest_port_is_named():
    messages = np.full((16, 16), 1e6)
    messages[3, 12] = 1e9
    got = price_matrix(messages, fabric=fabric(node(), leaf()), library=library("direct"))
    assert (got.tier, got.rank) == ("leaf", 3)
    assert got.seconds == pytest.approx((1e9 + 7e6) / 10e9)


def test_a_matrix_that_is_none():
    with pytest.raises(
        InputError, match=r"^a message matrix must be square, a row and a column for each rank: got 2 x 3\.$"
    ):
        price_matrix(np.ones((2, 3)), fabric=DGX, library="nccl")
    with pytest.raises(InputError, match=r"^message sizes must be 0 or more: rank 1 sends -1 bytes to rank 0\.$"):
        price_matrix([[0, 1], [-1, 0]], fabric=DGX, library="nccl")
