"""Fusion is data: a runtime names runs of canonical operators that its kernels execute as one launch (DESIGN 2.7)."""

from __future__ import annotations

from collections.abc import Sequence

from rapid_llm.lowering.operators import Canonical, Operator


def fuse(sequence: Sequence[Canonical], fusions: Sequence[Sequence[str]]) -> list[Canonical]:
    """Replace every run of operators whose names a fusion lists, longest fusion first.

    A fused operator keeps the reads and writes that other operators or the backward pass can see; its inner tensors
    vanish from traffic and from memory. A pointwise run after a GEMM or attention kernel becomes its epilogue: the
    larger kernel keeps its columns. GEMMs of one input become one, as wide as all of them.
    """
    result = list(sequence)
    present = {op.name for op in result}
    for names in sorted(fusions, key=len, reverse=True):
        if not present.issuperset(names):
            continue
        at = 0
        while at + len(names) <= len(result):
            run = result[at : at + len(names)]
            if all(isinstance(op, Operator) and op.name == name for op, name in zip(run, names, strict=True)):
                rest = result[:at] + result[at + len(names) :]
                merged = _merge([op for op in run if isinstance(op, Operator)], rest)
                result[at : at + len(names)] = [merged]
                present.add(merged.name)
            at += 1
    return result


def _merge(run: list[Operator], rest: Sequence[Canonical]) -> Operator:
    read_outside = {name for op in rest if isinstance(op, Operator) for name in op.reads}
    written = {name for op in run for name in op.writes}
    read_inside = {name for op in run for name in op.reads}
    inner = {name for name in written & read_inside if name not in read_outside}
    reads = {n: b for op in run for n, b in op.reads.items() if n not in written}
    writes = {n: b for op in run for n, b in op.writes.items() if n not in inner}
    saves = tuple(dict.fromkeys(n for op in run for n in op.saves if n not in inner))
    main = next((op for op in run if op.family != "pointwise"), run[-1])
    columns, products = main.columns, [op for op in run if op.family == "gemm"]
    if len(products) > 1:
        columns = {**columns, "n": sum(op.columns["n"] for op in products)}
    kind = "reduce" if any(op.kind == "reduce" for op in run) else main.kind
    return Operator(
        name="+".join(op.name for op in run),
        family=main.family,
        reads=reads,
        writes=writes,
        columns=columns,
        kind=kind if main.family == "pointwise" else main.kind,
        dtype=main.dtype,
        saves=saves,
        weight=main.weight,
        frozen=main.frozen,
        when=main.when,
        rounds=main.rounds,
        passes=main.passes,
        bias=main.bias,
        pieces=main.pieces,
    )
