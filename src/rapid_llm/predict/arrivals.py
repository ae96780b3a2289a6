"""How long a prompt waits until it is read: for those ahead of it, by when prompts come, and for the engine to look.

By chance, at any moment of a long run: M/D/1. Those of a closed loop start in one burst, and come back in waves that
grow wider: after w outputs whose lengths vary by a share c, the next prompts of n users come within the time in which
the burst was read and 2 sqrt(pi w) c of a request's time (the width of a normal variate, one over its mean density).
"""

from __future__ import annotations

from math import hypot, inf, pi, sqrt

from rapid_llm.runtime import Serving

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


def patience(engine: Serving, rate: float, filled: float) -> float:
    """Steps for which the first of some prompts is put off for others, where ``rate`` of them come a step: as long as
    the engine waits, or until ``filled`` of them fill what it waits for."""
    return min(float(engine.batch_wait), max(0.0, filled - 1.0) / rate) if engine.batch_wait else 0.0


def gathered(engine: Serving, rate: float, filled: float) -> float:
    """Prompts that one pass reads: what comes between two looks, and while the first of them is put off."""
    return max(1.0, rate * engine.receive_interval, 1.0 + rate * patience(engine, rate, filled))


def until_read(
    engine: Serving, rate: float, filled: float, *, step: float, mean: float, decoding: float, most: float = inf
) -> float:
    """Mean wait (s) of a prompt that comes while others run until the first step that it may be part of.

    What is left of the decode steps between two looks (no more than the ``most`` in which all others are done), if it
    comes in one (a share ``decoding`` of the time; ``step`` seconds each); the steps that are decided already, of
    ``mean`` seconds; and what it is put off: the first of a group for all of that, who joins it for half.
    """
    put_off = patience(engine, rate, filled)
    joined = rate * put_off
    looks = decoding * min(engine.receive_interval, most) * step / 2.0
    return looks + engine.steps_ahead * mean + put_off * step * (1.0 + joined / 2.0) / (1.0 + joined)
