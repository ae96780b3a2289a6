"""What the messages of a step move, by parallel axis."""

from rapid_llm.lowering import Lowered
from rapid_llm.lowering.table import OPTIMIZER
from rapid_llm.network.placement import AxisTraffic


def step_traffic(lowered: Lowered) -> tuple[AxisTraffic, ...]:
    """Messages of one training step of the first plan, a row each: those of the stage that passes a unit most often.

    Forward and backward rows run once a micro-batch, rows of the optimizer once a step.
    """
    passes = lowered.layers[:, 0, :].max(axis=1)
    micro_batches = float(lowered.shapes.plans.micro_batches[0])
    return tuple(
        AxisTraffic(
            rows.axis,
            rows.op,
            float(rows.size[r, 0]),
            int(rows.ranks[r, 0]),
            float(rows.count[r, 0] * passes[rows.unit[r]] * (1.0 if rows.phase[r] == OPTIMIZER else micro_batches)),
        )
        for rows in lowered.messages
        for r in range(len(rows.names))
        if rows.ranks[r, 0] > 1 and rows.size[r, 0] > 0 and rows.count[r, 0] > 0
    )
