"""Two collectives at once on the links of a job."""

import pytest

from rapid_llm import hardware
from rapid_llm.network import Fabric
from rapid_llm.network.flow_prices import Carrier, Links, Message, interconnect
from rapid_llm.network.meeting import meet

from . import toys

DGX = hardware.system("dgx-h100")
NET = interconnect(DGX, Links(64))
LIBRARY = toys.library("ring", "direct", "p2p")
BETWEEN = Message("all_gather", 2.0**28, 8, 8)
"""The data-parallel groups of every rank of a node, each over its own card."""


def met(one, other, net=NET):
    return meet(one, other, Carrier(net, Fabric.of(DGX), LIBRARY))


def test_axes_on_different_links_do_not_meet():
    assert met(BETWEEN, Message("all_gather", 2.0**28, 8, 1)) == (0.0, 0.0)
    assert met(BETWEEN, Message("all_gather", 2.0**28, 1, 1)) == (0.0, 0.0)


def test_equal_traffic_on_the_same_links_takes_twice_as_long():
    assert met(BETWEEN, Message("reduce_scatter", 2.0**28, 8, 8)) == pytest.approx((1.0, 1.0), rel=0.01)


def test_what_each_suffers_does_not_depend_on_their_order():
    other = Message("all_to_all", 2.0**24, 16, 1)
    assert met(BETWEEN, other) == met(other, BETWEEN)[::-1]


def test_messages_bound_by_their_launch_leave_links_to_others():
    nccl = Carrier(NET, Fabric.of(DGX), "nccl")
    one, large = (meet(BETWEEN, Message("send_recv", size, 2, 32), nccl) for size in (2.0**12, 2.0**28))
    assert max(one) < 0.2 * max(large)
