"""The flags of the verbs. A flag is the name of a scenario field; its text is read as a scenario file is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any

from cyclopts import Group, Parameter

from rapid_llm.errors import InputError


def _in(group: Group, text: str, *, alias: str | None = None, name: str | None = None) -> Parameter:
    """Declare a flag of a group with its line of help."""
    return Parameter(group=group, help=text, alias=alias, name=name, show_default=False)


_SYSTEM = Group("System and software", sort_key=1)
_PLAN = Group("Plan", sort_key=2)
_JOB = Group("Workload", sort_key=3)
_ROUTING = "How popular experts are, and where they sit: {skew: 0.8}, {counts: [...], placement: greedy}."
_OUTPUT = Group("Output", sort_key=4)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """Flags of every verb that reads a scenario."""

    sets: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set", group=_OUTPUT, negative=(), help="Any field, as a.b=c; repeatable.", show_default=False
        ),
    ] = ()
    json: Annotated[
        bool, Parameter(group=_OUTPUT, negative=(), help="One JSON object, SI units.", show_default=False)
    ] = False


_Full = Annotated[
    bool,
    Parameter(
        group=_OUTPUT, negative=(), help="All notes, costs and defaults, in more than 30 lines.", show_default=False
    ),
]
_MemoryTimeline = Annotated[
    str | None,
    _in(_OUTPUT, "HTML page to write: the memory of every stage over a training step, or as a batch is served."),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Serving(Common):
    """Flags of the verbs that print an answer, of inference alone too."""

    out: Annotated[str | None, _in(_OUTPUT, "Folder for the resolved scenario, the report and its tables.")] = None
    full: _Full = False
    memory_timeline: _MemoryTimeline = None
    allow_infeasible: Annotated[
        bool,
        Parameter(group=_OUTPUT, negative=(), help="Give times even where memory does not fit.", show_default=False),
    ] = False


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Answering(Serving):
    """Flags of the verbs that may answer a training step."""

    timeline: Annotated[
        str | None, _in(_OUTPUT, "HTML page to write: the pipeline's schedule of a training step, stage by stage.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Fitting(Common):
    """Flags of the verbs that look at memory alone."""

    max: Annotated[
        str | None, _in(_OUTPUT, "Also the largest that fits: micro-batch, requests, sequence or layers.")
    ] = None
    full: _Full = False
    memory_timeline: _MemoryTimeline = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Objective:
    """Flags that ask for a latency instead of a batch."""

    slo: Annotated[
        str | None, _in(_JOB, "Instead of a batch: the most requests in flight within ttft=1s,tpot=30ms.")
    ] = None
    users: Annotated[str | None, _in(_JOB, "With --slo: the fewest accelerators for so many users.")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SystemFlags:
    """Fields at the top of a scenario."""

    system: Annotated[
        str | None, _in(_SYSTEM, "Name or file of a system, an accelerator's name, or '4x dgx-h100 + 4x dgx-a100'.")
    ] = None
    accelerator: Annotated[
        str | None, _in(_SYSTEM, "Name or file of an accelerator instead; in fit as many as the plan wants.")
    ] = None
    accelerators: Annotated[
        str | None, _in(_SYSTEM, "How many; default: the product of the degrees, or all of several groups.")
    ] = None
    runtime: Annotated[str | None, _in(_SYSTEM, "Framework, such as megatron-core or vllm.")] = None
    precision: Annotated[str | None, _in(_SYSTEM, "Preset: bf16, fp16, fp8, bf16-mixed, ...")] = None
    price_per_hour: Annotated[str | None, _in(_SYSTEM, "Of one accelerator: what tokens cost, in its currency.")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """Fields of ``parallelism``."""

    tp: Annotated[str | None, _in(_PLAN, "Tensor parallel degree.")] = None
    pp: Annotated[str | None, _in(_PLAN, "Pipeline parallel degree.")] = None
    cp: Annotated[str | None, _in(_PLAN, "Context parallel degree.")] = None
    exchange: Annotated[
        str | None, _in(_PLAN, "How cp ranks exchange a sequence: ring, all-gather, ulysses, hybrid.")
    ] = None
    ulysses: Annotated[str | None, _in(_PLAN, "Ranks that exchange heads, of cp (hybrid).")] = None
    ep: Annotated[str | None, _in(_PLAN, "Expert parallel degree.")] = None
    etp: Annotated[str | None, _in(_PLAN, "Tensor parallel degree of the experts.")] = None
    dp: Annotated[str | None, _in(_PLAN, "Data parallel degree; default: what is left over.")] = None
    sp: Annotated[bool | None, _in(_PLAN, "Sequence parallelism beside tp.")] = None
    layers_per_stage: Annotated[str | None, _in(_PLAN, "Layers of each pipeline stage, as [20, 12].")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingPlanFlags(PlanFlags):
    """Fields of ``parallelism`` that only a training step has a use for too."""

    vpp: Annotated[str | None, _in(_PLAN, "Model chunks per pipeline stage.")] = None
    schedule: Annotated[str | None, _in(_PLAN, "Pipeline schedule: 1f1b, interleaved, zb-v, dualpipe, ...")] = None
    zero_stage: Annotated[str | None, _in(_PLAN, "ZeRO stage, 0 to 3.")] = None
    dp_shard: Annotated[str | None, _in(_PLAN, "Ranks that ZeRO shards over, of dp; default: all (less is HSDP).")] = (
        None
    )


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """Fields of a training ``workload``."""

    global_batch_size: Annotated[str | None, _in(_JOB, "Sequences per optimizer step.")] = None
    micro_batch_size: Annotated[str | None, _in(_JOB, "Sequences per micro-batch.")] = None
    sequence_length: Annotated[str | None, _in(_JOB, "Tokens per sequence.")] = None
    decoder_sequence_length: Annotated[
        str | None, _in(_JOB, "Tokens that a decoder writes of each sequence that its encoder reads.")
    ] = None
    predictions: Annotated[
        str | None, _in(_JOB, "Masked tokens of each sequence that alone meet the vocabulary (BERT).")
    ] = None
    tokens: Annotated[str | None, _in(_JOB, "Of the whole run, as 15e12: its time and accelerator hours.")] = None
    recompute: Annotated[
        str | None, _in(_JOB, "Activations computed again: none, selective, full, {modules: [moe_act]}.")
    ] = None
    routing: Annotated[str | None, _in(_JOB, _ROUTING)] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InferenceFlags:
    """Fields of an inference ``workload``."""

    batch_size: Annotated[str | None, _in(_JOB, "Requests in flight in the whole job.")] = None
    total_requests: Annotated[str | None, _in(_JOB, "Requests of the whole job, all waiting at its start.")] = None
    closed_loop: Annotated[
        str | None, _in(_JOB, "true: so many users (--batch-size) send them, each the next one as one is done.")
    ] = None
    prompt_tokens: Annotated[str | None, _in(_JOB, "Tokens in, per request.")] = None
    output_tokens: Annotated[
        str | None, _in(_JOB, "Tokens out, per request; 0 where prompts are read alone, as for embeddings.")
    ] = None
    decoder_prompt_tokens: Annotated[
        str | None, _in(_JOB, "Tokens that a decoder starts from, where an encoder reads the prompt.")
    ] = None
    prompt_spread: Annotated[
        str | None, _in(_JOB, "Lengths of prompts that vary: standard deviation over mean, as 0.9.")
    ] = None
    output_spread: Annotated[str | None, _in(_JOB, "The same of outputs.")] = None
    batching: Annotated[str | None, _in(_JOB, "static, or continuous: requests are replaced as they finish.")] = None
    acceptance: Annotated[
        str | None, _in(_JOB, "Speculation: the chance that each draft is accepted after those before it, [0.8, 0.7].")
    ] = None
    draft: Annotated[str | None, _in(_JOB, "What drafts: mtp (default), ngram, or the name of a smaller model.")] = None
    beams: Annotated[str | None, _in(_JOB, "Beams of beam search.")] = None
    routing: Annotated[str | None, _in(_JOB, _ROUTING)] = None
    prefill: Annotated[
        str | None, _in(_JOB, "Prefill on a pool of its own: its fields, as tp=4,dp=2,system=dgx-h100.")
    ] = None
    decode: Annotated[str | None, _in(_JOB, "The decode pool beside it, as tp=8,dp=4,precision=fp8.")] = None
    ffn: Annotated[
        str | None, _in(_JOB, "Feed-forward parts of decode on a pool of their own beside it, as dp=8,ep=8.")
    ] = None


COMMON, ANSWERING, SERVING, FITTING, OBJECTIVE = Common(), Answering(), Serving(), Fitting(), Objective()
SYSTEM, PLAN, TRAINING_PLAN, TRAINING, INFERENCE = (
    SystemFlags(),
    PlanFlags(),
    TrainingPlanFlags(),
    TrainingFlags(),
    InferenceFlags(),
)

ScenarioFlags = SystemFlags | PlanFlags | TrainingFlags | InferenceFlags
NAMES = frozenset(
    field.name for group in (SystemFlags, TrainingPlanFlags, TrainingFlags, InferenceFlags) for field in fields(group)
)
"""Fields of a scenario that are flags."""
VERB_FLAGS = {
    "train": frozenset(f.name for group in (TrainingPlanFlags, TrainingFlags) for f in fields(group)),
    "infer": frozenset(f.name for group in (PlanFlags, InferenceFlags, Objective) for f in fields(group)),
}
"""Flags of the two verbs that ask for a job: where one of the other's was meant."""


def overrides(*groups: ScenarioFlags, memory_alone: bool = False) -> list[str]:
    """Turn the flags that were given into overrides as ``--set`` takes them; ``memory_alone``: a chip will do."""
    from rapid_llm.scenario import keywords

    given = dict(pair for group in groups for pair in _given(group))
    try:
        said = keywords.with_system(given, memory_alone=memory_alone)
    except InputError as error:
        raise in_flags(error) from None
    return [f"{path}={_text(value)}" for path, value in keywords.spelled(said).items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _given(group: ScenarioFlags) -> Iterable[tuple[str, Any]]:
    for field in fields(group):
        value = getattr(group, field.name)
        if value == "":
            raise InputError(f"--{field.name.replace('_', '-')} needs a value (got an empty text).")
        if value is not None:
            yield field.name, value


def in_flags(error: InputError) -> InputError:
    """An error that names fields, in the words of a command line: ``Try system: dgx-h100`` is ``--system dgx-h100``."""
    if error.file is not None:
        return error  # a file has fields
    flag = _NEEDED.get(error.field or "")
    said, missing, _ = error.message.partition(" is missing. ")
    if flag is not None and missing:
        message, suggestions = f"{said}{missing}Try {flag}.", [flag]
    elif _SEVERAL.search(error.message):
        message, suggestions = f"{error.message} {ALTERNATIVES}", []
    else:
        message = _INLINE.sub(r'\1 --\2 "\3"', _TRIED.sub(_flag, error.message))
        suggestions = list(error.suggestions)
    return InputError(message, field=error.field, file=error.file, line=error.line, suggestions=suggestions)


ALTERNATIVES = (
    "An answer is of one plan: 'rapid-llm diff A B' compares two, and a loop over rapid_llm.train(..., tp=tp) or "
    "rapid_llm.infer(...) in Python as many as you like."
)
"""What to do who wants several plans at once."""
_SEVERAL = re.compile(r"must be (an integer|a number) \(got '\d+(\s*,\s*\d+)+'\)\.$")
"""Several numbers where one is meant."""
_TRIED = re.compile(r"\b(Try|or|and) (\w+): (?=[\w.-])")
"""A field and its value, where a sentence says what to try."""
_INLINE = re.compile(r"\b(Try|or|and|as) (system): (\{.*\}\})")
"""A whole system, where a sentence says to try it."""


def _flag(tried: re.Match[str]) -> str:
    word, name = tried.groups()
    if name == "network" and word != "and":  # the one plain field of a scenario that is no flag of a job
        return f"{word} --set network="
    return f"{word} --{name.replace('_', '-')} " if name in NAMES else tried.group()


_NEEDED = {
    "workload.global_batch_size": "--global-batch-size 512",
    "workload.speculation.acceptance": '--acceptance "[0.8, 0.7, 0.6]"',
    "workload.sequence_length": "--sequence-length 4096",
    "workload.batch_size": "--batch-size 32",
    "workload.prompt_tokens": "--prompt-tokens 1024",
    "workload.output_tokens": "--output-tokens 256",
}
"""Flags that a job cannot do without, with a value to start from."""
