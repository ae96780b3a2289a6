"""The training suite: the time of one optimizer step, or the rate that a source printed in its place."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from rapid_llm import hardware, network, runtime
from rapid_llm.nouns import replaced
from rapid_llm.validation import conventions, translate
from rapid_llm.validation.cases import Baseline, Case, Skip, reading
from rapid_llm.validation.tables import Row, Table, count, integer, number

SUITE = "training"
METRIC = "step_time"
NANOTRON = "nanotron"
MEASURED_BANDWIDTH = "nanotron, own bandwidth"
SICK_FABRIC = "nanotron, sick fabric"
BEFORE_FIX = "nanotron, before the pipeline fix"
HEALTHY_BUSBW = 60.0
"""GB/s of an all-reduce across nodes: below it, nodes that reach up to 100 were sick."""
MARKED = {"pp>1 before PP fix": BEFORE_FIX, "very low throughput": SICK_FABRIC}
"""Flags of runs that worked on what a description cannot know: groups of their own, beside the mean."""
PROBE_BYTES = 2.0**30
"""Size of an all-reduce that shows bandwidth and not latency."""


def cases(table: Table) -> Iterator[Case]:
    """Cases of a training table, and of the nanotron sweep: another group knows the bandwidth of its own nodes."""
    if table.schema == "training":
        for row in table.rows:
            yield _case(translate.completed(row), row["source"])
    if table.schema == "nanotron":
        for row in table.rows:
            same = nanotron_row(row)
            group = _condition(row)
            yield _case(same, group)
            if group == NANOTRON:
                yield _case(same, MEASURED_BANDWIDTH)


def _condition(row: Row) -> str:
    """The group of a nanotron run: by the flags that say what it ran on, then by the bandwidth of its nodes."""
    flags = row.get("qa_flags") or ""
    marked = next((group for flag, group in MARKED.items() if flags.startswith(flag)), None)
    across = count(row, "n_gpus") > count(row, "gpus_per_node")
    sick = across and 0.0 < (number(row, "ar_busbw_gbs") or 0.0) < HEALTHY_BUSBW
    return marked or (SICK_FABRIC if sick else NANOTRON)


def nanotron_row(row: Row) -> Row:
    """A row of the nanotron sweep in the columns of the training tables."""
    return {
        **row,
        "source": NANOTRON,
        "model": row.get("model_label", ""),
        "global_batch": row["global_batch_seqs"],
        "metric": "tokens_per_s_per_gpu",
        "value": row["tokens_per_s_per_gpu"],
        "recompute": "none",
        "flop_convention": "full attention",
        "case_group": f"nanotron/{row.get('model_label', '')}-{row['n_gpus']}",
    }


def split_key(row: Row) -> str:
    """What the split rule hashes: the case group; vTrain's single-node rows by hidden size and layers."""
    if row["source"] == "vtrain-single":
        return f"vtrain-single/h{row['hidden']}-l{row['layers']}"
    return row.get("case_group") or f"{row['source']}/{row.get('model', '')}"


def _case(row: Row, group: str) -> Case:
    well = group not in (SICK_FABRIC, BEFORE_FIX)
    with reading() as found:
        _check(row)
        found.measured = _measured(row)
        found.scenario = scenario = scenario_of(row)
        if group == MEASURED_BANDWIDTH:
            found.scenario = {**scenario, "system": _own_bandwidth(row, scenario)}
        found.baselines = _baselines(row)
    return Case(
        suite=SUITE,
        group=group,
        metric=METRIC,
        id=row["id"],
        key=split_key(row),
        quantity=METRIC,
        headline=well and group != MEASURED_BANDWIDTH,
        quoted=well,
        **found.fields(),
    )


def _check(row: Row) -> None:
    outcome = row.get("outcome", "ok")
    if outcome != "ok":
        raise Skip("ran out of memory" if outcome == "OOM" else "failed for another reason")
    flags = row.get("qa_flags")
    if flags and not flags.startswith(tuple(MARKED)):
        raise Skip(f"flagged: {flags.split(';')[0].split('(')[0].strip()}")
    translate.check(row)


def _measured(row: Row) -> float:
    peak = translate.accelerator_of(row).peak if row["metric"] == "mfu" else {}
    try:
        return conventions.step_time(row, peak.get("bf16", 0.0))
    except (ValueError, ZeroDivisionError) as error:
        raise Skip(str(error)) from None


def scenario_of(row: Row) -> Mapping[str, Any]:
    """The scenario of a training row; Skip says why there is none."""
    if not number(row, "micro_batch"):
        raise Skip("the micro-batch size is not stated")
    scenario: dict[str, Any] = {
        "model": translate.catalogue_model(row) if row.get("moe_experts") else translate.inline_model(row),
        "system": translate.system_of(row),
        "accelerators": count(row, "n_gpus"),
        "runtime": translate.runtime_of(row),
        "parallelism": parallelism_of(row),
        "workload": {
            "kind": "training",
            "global_batch_size": count(row, "global_batch"),
            "micro_batch_size": count(row, "micro_batch"),
            "sequence_length": count(row, "seq_len"),
        },
    }
    if (recompute := recompute_of(row)) is not None:
        scenario["workload"]["recompute"] = recompute
    if rule := translate.first("predictors", row):
        scenario["workload"]["mtp_layers"] = rule["layers"]
    if offload := _sharding(row).get("offload"):
        scenario["workload"]["offload"] = offload
    if preset := translate.precision_of(row):
        scenario["precision"] = preset
    return scenario


def parallelism_of(row: Row) -> Mapping[str, Any]:
    """Degrees above one, and what the row states of sequence parallelism, sharding and chunks."""
    plan: dict[str, Any] = {axis: count(row, axis) for axis in ("tp", "pp", "cp", "ep", "vpp") if count(row, axis) > 1}
    if plan.get("ep") and (etp := integer(row, "etp")):
        plan["etp"] = etp
    if plan.get("vpp"):
        plan["schedule"] = "interleaved"
    if rule := translate.first("schedules", row):
        plan["schedule"] = rule["schedule"]
    if plan.get("cp") and (rule := translate.first("exchanges", row)):
        plan["exchange"] = rule["exchange"]
    if rule := translate.first("layouts", row):
        plan["layers_per_stage"] = list(rule["layers"])
    if plan.get("tp") and row.get("sp"):
        plan["sp"] = bool(number(row, "sp"))
    rule = _sharding(row)
    return plan | {field: rule[field] for field in ("zero_stage", "dp_shard") if field in rule}


def _sharding(row: Row) -> Mapping[str, Any]:
    """How the row shards and offloads its states; empty where it does not say."""
    if not row.get("zero_stage"):
        return {}
    rule = translate.first("zero_stages", row)
    if rule is None or "skip" in rule:
        raise Skip(rule["skip"] if rule else f"no sharding '{row['zero_stage']}'")
    return rule


def recompute_of(row: Row) -> str | Mapping[str, Any] | None:
    """Recompute mode of a row, or its fields. Where it does not say: none in the sources that the rules know, else what
    the framework's users run (None)."""
    if rule := translate.first("recomputes", row):
        named: str | Mapping[str, Any] = rule["recompute"]
        return named
    return "none" if translate.first("runtimes", row) else None


def _own_bandwidth(row: Row, scenario: Mapping[str, Any]) -> str | Mapping[str, Any]:
    """The system on which an all-reduce over the whole job takes what it took on the row's nodes.

    Groups that do not span the job share its network with fewer others: only the network above them is slower. Where
    hosts compare collectives before they launch them, the probe timed the hosts, and says nothing of the network.
    """
    name, busbw, ranks = scenario["system"], number(row, "ar_busbw_gbs"), count(row, "n_gpus")
    node = hardware.system(name).groups[0].node if isinstance(name, str) else None
    if ranks <= count(row, "gpus_per_node"):
        raise Skip("one node: no bandwidth between nodes to know")
    if not busbw or node is None or node.nics is None:
        raise Skip("the bandwidth of the nodes was not measured")
    software = runtime.load(scenario["runtime"])
    if software.host.comparing.across:
        return str(name)
    took = PROBE_BYTES * 2.0 * (ranks - 1) / ranks / (busbw * 1e9)
    slower = _slower(name, software.communication.library, ranks, took)
    nodes = count(row, "tp") / node.accelerators
    return {"base": name, "fabric": _narrowed(slower, int(nodes) if count(row, "tp") < ranks else 1)}


def _narrowed(slower: float, nodes: int) -> Mapping[str, Any]:
    return {"leaf_nodes": max(1, nodes), "oversubscription": round(slower, 4)}


@lru_cache(maxsize=256)
def _slower(system: str, library: str, ranks: int, took: float) -> float:
    """How many times slower than the system's the network is on which an all-reduce over all ranks takes ``took`` s.

    Time is a + b x, with x the slowness; bus bandwidth is size x 2(n - 1)/n over seconds (nccl-tests, PERFORMANCE.md).
    """
    first, second = (_probe(system, library, ranks, slowness) for slowness in (1.0, 2.0))
    return max(1.0, 1.0 + (took - first) / (second - first))


@lru_cache(maxsize=64)
def _probe(system: str, library: str, ranks: int, slowness: float) -> float:
    """Seconds that we predict for a large all-reduce over all ranks of a job, on a network so many times slower."""
    described = hardware.system(system)
    between = replaced(described.fabric, **_narrowed(slowness, 1))
    fabric = network.Fabric.of(replaced(described, fabric=between))
    return float(network.price("all_reduce", PROBE_BYTES, ranks, 1, fabric=fabric, library=library).seconds)


def _baselines(row: Row) -> Mapping[str, Baseline]:
    """One constant TFLOP/s per (source, accelerator, precision), without and with the pipeline bubble."""
    accelerators, pp = count(row, "n_gpus"), count(row, "pp")
    seconds = conventions.work_flops(row) / accelerators
    replicas = accelerators / (count(row, "tp") * pp * count(row, "cp"))
    micro_batches = max(count(row, "global_batch") / (replicas * count(row, "micro_batch")), 1.0)
    bubble = 1.0 + (pp - 1) / (count(row, "vpp") * micro_batches)
    constant = f"{row['source']}/{row['gpu']}/{row.get('precision', '')}"
    return {"constant": Baseline(seconds, constant), "constant and bubble": Baseline(seconds * bubble, constant)}
