"""What a failing check of a plan says: one sentence with the arithmetic and the values that would do."""

from rapid_llm.hardware import system_with
from rapid_llm.hardware.system import MAX_ACCELERATORS
from rapid_llm.scenario.sentences import MOST_TRIED, Row, beside, divisors, listed, nearby


def heads(row: Row) -> str:
    """tp does not divide the attention heads."""
    heads, tp = row["num_attention_heads"], row["tp"]
    tried = listed(divisors(heads))
    return f"parallelism.tp must divide num_attention_heads: {heads} heads / tp {tp} leaves {heads % tp}. Try {tried}."


def kv_heads(row: Row) -> str:
    """tp neither divides nor, where the runtime keeps copies, repeats the key-value heads."""
    kv, tp, heads = row["num_key_value_heads"], row["tp"], row["num_attention_heads"]
    if not row["repeats_kv_heads"]:
        fits = [d for d in divisors(kv) if heads % d == 0]
        return (
            f"parallelism.tp {tp} must divide num_key_value_heads {kv}: {row['runtime']} keeps no copies of them. "
            f"Try {listed(fits)}."
        )
    fits = [d for d in divisors(heads) if kv % d == 0 or d % kv == 0]
    return (
        f"parallelism.tp {tp} must divide num_key_value_heads {kv}, or be a multiple of it so that each rank keeps a "
        f"copy. Try {listed(fits)}."
    )


def state_heads(row: Row) -> str:
    """tp does not divide the heads of a recurrent mixer."""
    heads, tp = row["num_state_heads"], row["tp"]
    tried = listed(divisors(heads))
    return f"parallelism.tp must divide the state heads: {heads} heads / tp {tp} leaves {heads % tp}. Try {tried}."


def ulysses(row: Row) -> str:
    """ulysses does not divide cp."""
    cp, degree = row["cp"], row["ulysses"]
    return (
        f"parallelism.ulysses must divide cp: {cp} / ulysses {degree} leaves {cp % degree}. Try {listed(divisors(cp))}."
    )


def exchange(row: Row) -> str:
    """The way in which a sequence is exchanged, and how many ranks exchange heads, do not agree."""
    way, cp, degree = row["way"], row["cp"], row["ulysses"]
    if way == "hybrid":
        between = divisors(cp)[1:-1]
        tried = f"ulysses {listed(between)}" if between else "exchange: ring"
        return f"parallelism.exchange hybrid needs ulysses between 1 and cp {cp} (got ulysses {degree}). Try {tried}."
    if way == "ulysses":
        return (
            f"parallelism.exchange ulysses takes all cp {cp} ranks (got ulysses {degree}). "
            f"Try exchange: hybrid, or ulysses {cp}."
        )
    return (
        f"parallelism.exchange {way} exchanges no heads (got ulysses {degree}). "
        f"Try exchange: {'ulysses' if degree == cp else 'hybrid'}, or ulysses 1."
    )


def exchanged_heads(row: Row) -> str:
    """There are too few key-value heads for all ranks that exchange heads."""
    kv, tp, degree = row["num_key_value_heads"], row["tp"], row["ulysses"]
    fits = [d for d in divisors(row["cp"]) if kv % (d * tp) == 0] or [1]
    if len(row["ways"]) == 1:
        return (
            f"parallelism.cp {row['cp']} x tp {tp} = {degree * tp} must divide num_key_value_heads {kv}, as each rank "
            f"of {row['runtime']} takes whole heads. Try cp and ulysses {listed(fits)}."
        )
    hybrids = [d for d in fits if 1 < d < row["cp"]]
    tried = f"ulysses {listed(hybrids)} with exchange: hybrid" if hybrids else "exchange: ring"
    return (
        f"ulysses {degree} x tp {tp} = {degree * tp} must divide num_key_value_heads {kv}, as each rank takes whole "
        f"heads. Try {tried}, or cp {listed(fits)}."
    )


def dealt(row: Row) -> str:
    """``layers_per_stage`` does not add up to the layers, or has not one number for each stage."""
    stages, layers = row["pp"] * row["vpp"] * (1 + row["folded"]), row["num_hidden_layers"]
    what = f"chunks (pp {row['pp']} x vpp {row['vpp']})" if row["vpp"] > 1 else "stages"
    return (
        f"parallelism.layers_per_stage must deal {layers} layers to {stages} {what} "
        f"(got {row['dealt_layers']} to {row['dealt_stages']}). Try {_even(layers, stages)}."
    )


def idle(row: Row) -> str:
    """A stage between the first and the last has no layer."""
    return (
        f"parallelism.layers_per_stage leaves {row['idle_stages']} without a layer: only the first and the last, which "
        f"hold the embedding and the head, can do without. Try {_even(row['num_hidden_layers'], row['dealt_stages'])}."
    )


def _even(layers: int, stages: int) -> str:
    """The most equal ``layers_per_stage``, where the list is short enough to read."""
    each, more = divmod(layers, stages)
    return listed([each + 1] * more + [each] * (stages - more)) if stages <= MOST_TRIED else f"about {each} each"


def degrees(row: Row) -> str:
    """The product of the degrees, and the values of one of them that would divide."""
    total = row["accelerators"]
    fixed = [axis for axis in ("tp", "cp", "pp") if row[axis] > 1]
    product = row["tp"] * row["pp"] * row["cp"]
    if total % product == 0:
        shown = " x ".join(f"{axis} {row[axis]}" for axis in ("tp", "pp", "cp", "dp") if row[axis] > 1 or axis == "dp")
        fix = f"Try dp {total // product}, or accelerators {product * row['dp']}."
        return f"{shown} = {product * row['dp']} must be accelerators {total}. {fix}"
    shown = " x ".join(f"{axis} {row[axis]}" for axis in ("tp", "pp", "cp") if row[axis] > 1)
    whole = f"{shown} = {product}" if len(fixed) > 1 else shown
    axis = next((axis for axis in reversed(fixed) if total % (product // row[axis]) == 0), fixed[-1])
    rest = product // row[axis]
    fits = divisors(total // rest) if total % rest == 0 else []
    left = [total // (rest * degree) for degree in fits]
    passes = row["passing"](**{axis: fits, "dp": left, "dp_shard": left}) if fits else []
    fits = [degree for degree, good in zip(fits, passes, strict=True) if good]
    tried = f"Try {axis} {listed(fits)}." if fits else f"Try accelerators {beside(total, product)}."
    return f"{whole} must divide accelerators {total}: {total} / {product} leaves {total % product}. {tried}"


def too_many(row: Row) -> str:
    """More ranks than a job takes."""
    return f"accelerators {row['accelerators']:,} is more than a job takes. Try at most {MAX_ACCELERATORS:,}."


def enough(row: Row) -> str:
    """More ranks than the system has accelerators."""
    size, has = row["node_size"], row["system_accelerators"]
    if row["groups"] > 1:
        return (
            f"accelerators {row['accelerators']} is more than system {row['system']} has: {row['held']} = {has}. "
            f"Try accelerators {has}, or more nodes in a group."
        )
    nodes, need = has // size, -(-row["accelerators"] // size)
    found = system_with(row["accelerator"], row["accelerators"])
    own = f"system: {{node: {{accelerator: {row['accelerator']}, accelerators: {row['accelerators']}}}}}"
    if has == 1 and row["system"] == row["accelerator"]:
        return (
            f"accelerators {row['accelerators']} is more than system {row['system']} has: the name of an accelerator "
            f"stands for one alone. Try {f'system: {found}' if found else own}, which has more of them."
        )
    larger = f"a system with more of them, such as {found or own}"
    more = f"--set system.nodes={need}" if has > 1 else larger
    plural = "node" if nodes == 1 else "nodes"
    return (
        f"accelerators {row['accelerators']} is more than system {row['system']} has: "
        f"{nodes} {plural} x {size} = {has}. Try accelerators {has}, or {more}."
    )


def nodes(row: Row) -> str:
    """The last node would be partly used."""
    before, size = row["before"], row["node_size"]
    total = row["accelerators"] - before
    left = f"{total} / {size} leaves {total % size}"
    if before:
        low = before + total // size * size
        return (
            f"accelerators {before + total} do not fill the nodes of {size} of group {row['last_group']}, which are "
            f"taken last: {left}. Try {low} or {low + size}."
        )
    return f"accelerators {total} do not fill nodes of {size}: {left}. Try {beside(total, size)}."


def chunks(row: Row) -> str:
    """Layers do not divide over the chunks of all stages."""
    layers, pp, vpp = row["num_hidden_layers"], row["pp"], row["vpp"]
    if row["folded"]:
        tried = f"pp {listed(divisors(layers // 2))}" if layers % 2 == 0 else "schedule: zb-h1"
        return (
            f"schedule {row['schedule']} cuts each of pp {pp} stages in 2 chunks: {layers} layers / {2 * pp} leaves "
            f"{layers % (2 * pp)}. Try {tried}."
        )
    left = layers % (pp * vpp)
    fits = divisors(layers // pp) if layers % pp == 0 else [1]
    return (
        f"pp {pp} x vpp {vpp} = {pp * vpp} must divide num_hidden_layers {layers}: "
        f"{layers} / {pp * vpp} leaves {left}. Try vpp {listed(fits)}."
    )


def experts(row: Row) -> str:
    """ep does not divide the experts, or there are none."""
    experts, ep = row["num_experts"], row["ep"]
    if not experts:
        return f"parallelism.ep {ep} needs a model with experts, and {row['model']} has none. Try ep 1."
    fits = divisors(experts)
    tried = listed(fits) if len(fits) <= MOST_TRIED else nearby(ep, fits)
    return f"parallelism.ep must divide num_experts: {experts} experts / ep {ep} leaves {experts % ep}. Try {tried}."


def expert_ranks(row: Row) -> str:
    """The expert grid does not divide the ranks that it regroups."""
    need, have = row["etp"] * row["ep"], row["tp"] * row["cp"] * row["dp"]
    fits = (
        listed(d for d in divisors(have // row["etp"]) if row["num_experts"] % d == 0) if have % row["etp"] == 0 else ""
    )
    tried = f"Try ep {fits}." if fits else "Try etp 1."
    return (
        f"etp {row['etp']} x ep {row['ep']} = {need} must divide tp {row['tp']} x cp {row['cp']} x dp {row['dp']} = "
        f"{have}: {have} / {need} leaves {have % need}. {tried}"
    )


def width(row: Row) -> str:
    """tp does not divide the MLP."""
    size, tp = row["intermediate_size"], row["tp"]
    tried = listed(divisors(size, 64))
    return f"parallelism.tp must divide intermediate_size: {size} / tp {tp} leaves {size % tp}. Try {tried}."


def expert_width(row: Row) -> str:
    """etp does not divide an expert."""
    size, etp = row["moe_intermediate_size"], row["etp"]
    tried = listed(divisors(size, 64))
    return f"parallelism.etp must divide moe_intermediate_size: {size} / etp {etp} leaves {size % etp}. Try {tried}."


def schedule(row: Row) -> str:
    """vpp and schedule contradict each other."""
    if row["looped"]:
        return f"schedule {row['schedule']} needs vpp above 1 (got vpp {row['vpp']}). Try vpp 2, or schedule: 1f1b."
    if row["folded"] or row["two_way"]:
        return f"schedule {row['schedule']} has two chunks a stage of its own (got vpp {row['vpp']}). Try vpp 1."
    return f"parallelism.vpp {row['vpp']} needs schedule: interleaved (got {row['schedule']}). Try vpp 1."


def shift(r: Row) -> str:
    """``shift`` needs sequence parallelism over heads, in inference, within one stage."""
    if r["training"]:
        return "parallelism.shift is for inference, and workload.kind is training. Try to leave it out."
    return (
        f"parallelism.shift switches all cp ranks between ulysses and tp in one stage (got cp {r['cp']}, ulysses "
        f"{r['ulysses']}, pp {r['pp']}). Try cp 4, ulysses 4, pp 1."
    )


def helix(r: Row) -> str:
    """``helix`` divides the cache of decode over cp ranks, which nothing else may use."""
    if r["training"]:
        return "parallelism.helix is for inference, and workload.kind is training. Try to leave it out."
    got = [f"cp {r['cp']}"]
    tried = ["cp 4"] if r["cp"] == 1 else []
    if r["ulysses"] > 1:
        got.append(f"exchange {r['way']}, ulysses {r['ulysses']}")
        tried.append("to leave exchange and ulysses out")
    if r["shifts"]:
        got.append("shift")
        tried.append("shift false")
    return (
        f"parallelism.helix deals the cache of decode over cp, without an exchange of heads or shift (got "
        f"{', '.join(got)}). Try {', and '.join(tried)}."
    )


def regrouped(r: Row) -> str:
    """A size does not divide over the ranks of Helix."""
    sizes = {name: r[name] for name in ("num_attention_heads", "intermediate_size", "num_state_heads")}
    tp, ranks = r["tp"], r["tp"] * r["cp"]
    name, size = next((name, size) for name, size in sizes.items() if size % ranks)
    fits = [d for d in divisors(size // tp, 64) if d > 1 and not any(n % (d * tp) for n in sizes.values())]
    return (
        f"parallelism.helix cuts {name} {size} over tp {tp} x cp {r['cp']} = {ranks} ranks, which leaves "
        f"{size % ranks}. Try cp {listed(fits)}."
    )


def repeated_heads(r: Row) -> str:
    """Ranks hold the same keys and values, though with Helix they could divide the tokens instead."""
    kv = r["num_key_value_heads"]
    return (
        f"parallelism.tp {r['tp']} holds each of {kv} key-value heads more than once, which helix is there to avoid. "
        f"Try tp {kv}, cp {r['tp'] * r['cp'] // kv}."
    )
