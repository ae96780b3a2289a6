"""How popular experts are, and on which ranks they sit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm.documents import build
from rapid_llm.errors import InputError
from rapid_llm.workload import Routing, misplaced

COUNTS = [80, 10, 10, 20, 10, 10, 10, 10]


def test_neighbours_in_a_row_are_what_nobody_places():
    assert Routing(counts=COUNTS).load(4, 8) == pytest.approx(90 / 40)
    assert Routing(counts=COUNTS, placement=[[0, 1], [2, 3], [4, 5], [6, 7]]).load(4, 8) == pytest.approx(90 / 40)


def test_a_placement_moves_the_load():
    apart = Routing(counts=COUNTS, placement=[[0, 1], [3, 2], [4, 5], [6, 7]])
    swapped = Routing(counts=COUNTS, placement={1: [3, 0], 0: [1, 2], 2: [4, 5], 3: [6, 7]})
    assert (apart.load(4, 8), swapped.load(4, 8)) == (pytest.approx(90 / 40), pytest.approx(100 / 40))


def test_copies_share_the_tokens_of_their_expert():
    held = Routing(counts=COUNTS, placement=[[0, 1, 2], [0, 3, 4], [0, 5, 6], [0, 7, 1]])
    copied = 80 / 4
    assert held.load(4, 8) == pytest.approx((copied + 20 + 10) / 40)
    assert held.held(8) == 12


def test_greedy_levels_as_well_as_the_heaviest_expert_allows():
    # EPLB of DeepSeek: without copies the rank of expert 0 has at least its 80 and the lightest other; with 4 copies
    # beside the 8 experts three a rank.
    assert Routing(counts=COUNTS, placement="greedy").load(4, 8) == pytest.approx(90 / 40)
    assert Routing(counts=COUNTS, redundant_experts=4).load(4, 8) < 1.3


def test_counts_of_each_layer_have_places_of_their_own():
    other = COUNTS[::-1]
    both = Routing(counts=[COUNTS, other], placement="greedy", redundant_experts=4)
    each = [Routing(counts=layer, redundant_experts=4).load(4, 8) for layer in (COUNTS, other)]
    assert both.layer_loads(4, 8).tolist() == pytest.approx(each)
    assert both.load(4, 8) == pytest.approx(np.mean(each))


def test_a_capacity_drops_what_an_expert_has_too_many_of():
    assert Routing(counts=COUNTS, capacity=2.0).load(4, 8) == pytest.approx((2 * 20 + 10) / 40)


@given(
    st.integers(1, 4).flatmap(lambda a: st.lists(st.integers(0, 1000), min_size=8 * a, max_size=8 * a)).filter(any),
    st.sampled_from([2, 4, 8]),
    st.integers(0, 3),
)
def test_greedy_places_every_expert_and_no_rank_holds_one_twice(counts, ep, rounds):
    experts = len(counts)
    routing = Routing(counts=counts, placement="greedy", redundant_experts=min(rounds, experts * (ep - 1) // ep) * ep)
    shares = routing.shares(experts, ep)
    assert shares.shape == (1, ep, (experts + routing.redundant_experts) // ep)
    assert shares.sum() == pytest.approx(experts)
    assert routing.load(ep, experts) <= Routing(counts=counts).load(ep, experts) * (4 / 3) + 1e-9


@given(st.floats(0.1, 3.0), st.sampled_from([2, 4, 8, 16]))
def test_copies_make_the_hottest_rank_no_hotter(skew, ep):
    plain, copied = (Routing(skew=skew, placement="greedy", redundant_experts=more) for more in (0, 2 * ep))
    assert copied.load(ep, 64) <= plain.load(ep, 64) * 1.01


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"skew": 0.5, "counts": [1, 2]}, r"takes one of hottest, counts and skew \(got counts and skew\)"),
        ({"hottest": 1.5, "skew": 0.5}, r"takes one of hottest, counts and skew \(got hottest and skew\)"),
        ({"counts": [0, 0]}, "has counts of no token at all in list 0. Try skew: 0.8, or leave them out"),
        ({"counts": [[1, 2], [0, 0]]}, "has counts of no token at all in list 1"),
        ({"counts": [10**400, 1]}, r"counts\[0\]\[0\] must be at most "),
        ({"hottest": 1.5, "placement": "greedy"}, "has hottest, which says what a placement comes to"),
        ({"placement": [[0], [1]], "redundant_experts": 1}, "beside a placement that lists all copies"),
        ({"placement": {0: [0], 2: [1]}}, "must name ranks 0 to 1"),
    ],
)
def test_two_answers_to_one_question_are_refused(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        build(Routing, fields)


@pytest.mark.parametrize("placement", [[], {}, 5, [0, 1], [[0, -1]], [["a"]], [[0.5], [1]], [[True]], [None], {0: 3}])
def test_a_placement_that_is_none_is_refused(placement):
    with pytest.raises(InputError, match=r"must be greedy, or list the experts .* Try \[\[0, 1\], \[2, 3\]\]\.$"):
        build(Routing, {"placement": placement})


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([[0, 1], [2, 3]], ""),
        ([[0, 1], [2, 4]], "puts expert 4 on rank 1, and experts are 0 to 3"),
        ([[0, 1], [2, 2]], "puts expert 2 on rank 1 twice"),
        ([[0, 1, 3], [2]], "gives rank 1 1 experts and rank 0 3, which must be as many"),
        ([[0, 1], [2, 0]], "puts expert 3 on no rank"),
    ],
)
def test_what_is_wrong_with_a_placement(ranks, said):
    assert misplaced(Routing(placement=ranks), 4) == said
