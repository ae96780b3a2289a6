"""How long a prompt waits for those ahead of it, by when prompts come.

By chance, at any moment of a long run: M/D/1. Those of a closed loop start in one burst, and come back in waves that
grow wider: after w outputs whose lengths vary by a share c, the next prompts of n users come within the time in which
the burst was read and 2 sqrt(pi w) c of a request's time (the width of a normal variate, one over its mean density).
"""

from __future__ import annotations

from math import hypot, inf, pi, sqrt

AT_RANDOM = sqrt(2.0 * pi) / 8.0
"""Mean wait, in services times the root of how many come, where as many come as are served: of the supremum of a
Brownian bridge behind it."""


def by_chance(busy: float, full: float) -> float:
    """Mean wait in services of one prompt, read a share ``busy`` of the time and, with as many in a pass as fit,
    ``full``: what is left of the one that is read, and the queue behind it."""
    queue = full**2 / (1.0 - full) if full < 1.0 else inf
    return (busy + queue) / 2.0


def within(window: float, prompts: float, each: float) -> float:
    """Mean wait (s) of so many prompts that come at random within a window (s) and take ``each`` (s) to read.

    Between its limits, an endless run and as many as are served, by their inverse squares.
    """
    busy = prompts * each / window if window > 0.0 else 0.0
    if prompts <= 1.0 or busy <= 0.0:
        return 0.0
    endless, most = by_chance(min(1.0, busy), min(1.0, busy)), AT_RANDOM * sqrt(prompts - 1.0)
    return each / hypot(1.0 / endless, 1.0 / most)


def in_waves(waves: int, period: float, spread: float, prompts: float, each: float) -> float:
    """Mean wait (s) beyond that of chance over the waves of a closed loop behind its first burst.

    ``period``: of a request (s); ``spread`` of its length; prompts that take ``each`` (s) to read. The burst was read
    in a row, so that equal lengths come back one by one.
    """
    if not spread or waves < 1:
        return 0.0
    even, row = within(period, prompts, each), prompts * each
    widths = (2.0 * sqrt(pi * w) * spread * period for w in range(1, waves + 1))
    return sum(within(min(period, row + one), prompts, each) - even for one in widths) / waves
