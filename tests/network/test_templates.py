"""The sends of a template agree with the loads and rounds that its closed form uses."""

import itertools

import numpy as np
import pytest

from rapid_llm.network.flows import SWITCH, expand
from rapid_llm.network.sends import woven
from rapid_llm.network.templates import BUILDERS, loads

GROUPS = [((8,), 1), ((4, 16), 1), ((2, 4), 1), ((8,), 0), ((8, 64), 0), ((3,), 0), ((2,), 0)]


def cases():
    found = []
    for name, (build, ops) in BUILDERS.items():
        for op in ops:
            for bounds, inside in GROUPS:
                needs = {
                    "nvls": inside == len(bounds),
                    "nvls-tree": inside < len(bounds) and inside,
                    "tree": inside < len(bounds),
                    "pxn": inside < len(bounds) and inside,
                    "sharp": inside < len(bounds),
                    "halving-doubling": bounds[-1] & (bounds[-1] - 1) == 0,
                }
                if needs.get(name, True):
                    found.append(pytest.param(build(op, bounds, inside), bounds, id=f"{name}-{op}-{bounds}-{inside}"))
    return found


@pytest.mark.parametrize(("template", "bounds"), cases())
def test_sends_are_what_the_closed_form_counts(template, bounds):
    flows = expand(template, bounds)
    sent = np.bincount(flows.source, weights=flows.share, minlength=bounds[-1])
    assert sent.max() == pytest.approx(template.sent)
    for index, phase in enumerate(template.phases):
        assert flows.step[flows.phase == index].max() + 1 == phase.steps or phase.pattern == "neighbour"


@pytest.mark.parametrize(("template", "bounds"), [c for c in cases() if len(c.values[1]) == 2])
def test_the_load_between_units_is_spread_over_their_ports(template, bounds):
    if any(phase.pattern in ("relay", "neighbour", "switch") for phase in template.phases):
        pytest.skip("one path, or towards the switch: not spread")
    flows, unit = expand(template, bounds), bounds[0]
    crosses = (flows.source // unit != flows.destination // unit) & (flows.destination != SWITCH)
    leaves = np.bincount(flows.source[crosses] // unit, weights=flows.share[crosses]) / unit
    expected = sum(loads(phase, bounds)[1] for phase in template.phases)
    assert leaves.max() == pytest.approx(expected, rel=0.51 if bounds == (8, 64) else 1e-9)


def _reached(template, bounds):
    """Which ranks' data each rank holds after all sends, channel by channel, in order of rounds."""
    flows, n = expand(template, bounds), bounds[-1]
    channels = int(flows.channel.max()) + 1
    held = np.broadcast_to(np.eye(n, dtype=bool), (channels, n, n)).copy()
    for index in range(len(template.phases)):
        for step in range(int(flows.step[flows.phase == index].max()) + 1):
            now = np.flatnonzero((flows.phase == index) & (flows.step == step))
            before = held.copy()
            for row in now:
                channel, source, to = flows.channel[row], flows.source[row], flows.destination[row]
                held[channel, to] |= before[channel, source]
    return held


@pytest.mark.parametrize("bounds", [(4, 16), (2, 8)])
def test_a_tree_brings_every_contribution_to_every_rank(bounds):
    build, _ = BUILDERS["tree"]
    held = _reached(build("all_reduce", bounds, 1), bounds)
    assert held.all()


@pytest.mark.parametrize(("count", "chains"), [(2, 1), (3, 2), (4, 2), (5, 4), (6, 2), (7, 6), (8, 7), (9, 6)])
def test_woven_chains_share_no_link(count, chains):
    paths = woven(count)
    assert [sorted(path.tolist()) for path in paths] == [list(range(count))] * chains
    used = [pair for path in paths for pair in itertools.pairwise(path.tolist())]
    assert {int(path[0]) for path in paths} == {0}
    assert len(set(used)) == len(used)
