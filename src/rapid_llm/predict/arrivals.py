"""How long a prompt waits until it is read: for the prompts ahead of it, and for the engine to look for new requests.

Prompts that come at random moments of a long run wait as in an M/D/1 queue. Those of a closed loop start in one burst
and come back in waves that grow wider: after w outputs whose lengths vary by a share c, the next prompts of n users
arrive within the time in which the burst was read and 2 sqrt(pi w) c of a request's time (the width of a normal
variate, one over its mean density).
"""

from __future__ import annotations

from math import hypot, inf, pi, sqrt

from rapid_llm.runtime import Serving

AT_RANDOM = sqrt(2.0 * pi) / 8.0
"""Mean wait, in services times the root of how many come, where as many come as are served: of the supremum of a
Brownian bridge behind it."""


def by_chance(busy: float, full: float) -> float:
    """Mean wait, in units of reading one prompt, of prompts that arrive at random: the rest of the pass that is under
    way and the queue behind it. ``busy``: share of the time in which prompts are read; ``full``: the same with as many
    prompts in a pass as fit.
    """
    queue = full**2 / (1.0 - full) if full < 1.0 else inf
    return (busy + queue) / 2.0


def within(window: float, prompts: float, each: float) -> float:
    """Mean wait (s) of a number of prompts that arrive at random within a window (s), each of which takes ``each`` (s)
    to read. Interpolates, by inverse squares, between two limits: the queue of an endless run, and what so many prompts
    can build up.
    """
    busy = prompts * each / window if window > 0.0 else 0.0
    if prompts <= 1.0 or busy <= 0.0:
        return 0.0
    endless, most = by_chance(min(1.0, busy), min(1.0, busy)), AT_RANDOM * sqrt(prompts - 1.0)
    return each / hypot(1.0 / endless, 1.0 / most)


def in_waves(waves: int, period: float, spread: float, prompts: float, each: float) -> float:
    """Mean wait (s), beyond that of random arrivals, over the waves of a closed loop after its first burst. ``period``:
    of a request (s); ``spread`` of its length; ``each``: seconds to read a prompt. The burst was read in a row, so that
    requests of equal lengths come back one by one.
    """
    if not spread or waves < 1:
        return 0.0
    even, row = within(period, prompts, each), prompts * each
    widths = (2.0 * sqrt(pi * w) * spread * period for w in range(1, waves + 1))
    return sum(within(min(period, row + one), prompts, each) - even for one in widths) / waves


def patience(engine: Serving, rate: float, filled: float) -> float:
    """Steps for which an engine puts off the first prompt to wait for more, where ``rate`` of them arrive in a step: as
    long as it is configured to wait, or until ``filled`` of them are there.
    """
    return min(float(engine.batch_wait), max(0.0, filled - 1.0) / rate) if engine.batch_wait else 0.0


def gathered(engine: Serving, rate: float, filled: float) -> float:
    """Prompts that one pass reads: those that arrive between two looks of the engine, and while it
    puts off the first.
    """
    return max(1.0, rate * engine.receive_interval, 1.0 + rate * patience(engine, rate, filled))


def until_read(
    engine: Serving, rate: float, filled: float, *, step: float, mean: float, decoding: float, most: float = inf
) -> float:
    """Mean wait (s) of a prompt, among running requests, until the first step that it may be part of: the rest of the
    decode steps between two looks (no more than ``most``, in which all others are done), if it arrives during one (a
    share ``decoding`` of the time; ``step`` seconds each); the steps that are already scheduled, of ``mean`` seconds;
    and the time for which it is put off, all of it for the first of a group and half for those that join.
    """
    put_off = patience(engine, rate, filled)
    joined = rate * put_off
    looks = decoding * min(engine.receive_interval, most) * step / 2.0
    return looks + engine.steps_ahead * mean + put_off * step * (1.0 + joined / 2.0) / (1.0 + joined)
