"""The engine against packets: the scorecard of the patterns must not fall behind."""

from pathlib import Path

import numpy as np
import pytest

from rapid_llm.network.engine import simulate
from rapid_llm.validation.suites.network import patterns, transport

FILE = Path(__file__).parents[3] / "shared" / "data" / "network" / "ns3_patterns.json.gz"
LIMITS = {"fq": (0.004, 0.04), "fifo": (0.009, 0.09), "pfc": (0.025, 0.10)}
"""Mean and largest error of completion that each mode may have."""


@pytest.mark.shared
@pytest.mark.parametrize("mode", LIMITS)
def test_completion_of_packet_patterns(mode):
    if not FILE.exists():
        pytest.skip(f"{FILE.name} is not there")
    errors, finish = [], []
    for pattern in patterns(FILE):
        if mode in pattern.completion:
            result = simulate(pattern.tasks, pattern.topology, transport=transport(pattern.transport, mode))
            errors.append(abs(result.seconds / pattern.completion[mode] - 1))
            finish.append(np.abs(result.finish / pattern.finish[mode] - 1))
    mean, most = LIMITS[mode]
    assert np.mean(errors) <= mean
    assert max(errors) <= most
    if mode == "fq":
        assert np.concatenate(finish).mean() <= 0.02
