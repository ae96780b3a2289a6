"""The verbs. Each one names its flags and hands over to the module that does the work, imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import App, Parameter

import rapid_llm
from rapid_llm.cli import flags
from rapid_llm.cli.help_examples import attach
from rapid_llm.cli.kernel_verbs import kernel
from rapid_llm.cli.network_flags import ON_LINKS, TOKENS, WRITTEN, OnLinks, Tokens, Written
from rapid_llm.errors import InputError, unknown_name
from rapid_llm.provenance import is_path

app = App(
    name="rapid-llm",
    help="How long distributed LLM training and inference takes, whether it fits, and what limits it.",
    help_format="plaintext",
    version=rapid_llm.__version__,
    version_flags=["--version"],
)
fit = App(name="fit", help="Memory only: does it fit, and what takes the space?", help_format="plaintext")
app.command(fit)
network = App(
    name="network",
    help="What the interconnect does: one collective, your own links, the order of ranks.",
    help_format="plaintext",
)
app.command(network)
calibrate = App(name="calibrate", help="Constants from your own measurements.", help_format="plaintext")
app.command(calibrate)
app.command(kernel)


def spelled_out(argv: Sequence[str]) -> list[str]:
    """A command line without what is short for something: ``fit FILE`` is ``fit run FILE``."""
    verb, *rest = argv or [""]
    flag_first = bool(rest) and rest[0].startswith("-") and any(map(is_path, rest))
    short = verb == "fit" and bool(rest) and (is_path(rest[0]) or flag_first)
    return ["fit", "run", *rest] if short else list(argv)


_SUITES = (
    "training, memory, inference, energy, collectives, network; of kernels: gemm, attention, mla, moe, ssm; "
    "default: all."
)
Model = Annotated[str, Parameter(name="MODEL", help="Catalogue name, YAML file, or a Hugging Face config.json.")]
File = Annotated[str, Parameter(name="FILE", help="Scenario file (YAML).")]
First = Annotated[str, Parameter(name="A", help="Scenario (YAML) or result (JSON).")]
Second = Annotated[str, Parameter(name="B", help="The same kind of file.")]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="One JSON object.", show_default=False)]


@app.command
def run(file: File, /, *, answering: flags.Answering = flags.ANSWERING) -> int:
    """Answer a scenario file."""
    from rapid_llm.cli.answering import answer_file

    return answer_file(file, answering)


@app.command
def train(
    model: Model,
    /,
    *,
    system: flags.SystemFlags = flags.SYSTEM,
    plan: flags.TrainingPlanFlags = flags.TRAINING_PLAN,
    job: flags.TrainingFlags = flags.TRAINING,
    answering: flags.Answering = flags.ANSWERING,
) -> int:
    """Answer one training step in one line."""
    from rapid_llm.cli.answering import answer_job

    return answer_job("training", model, flags.overrides(system, plan, job), answering)


@app.command
def infer(
    model: Model,
    /,
    *,
    system: flags.SystemFlags = flags.SYSTEM,
    plan: flags.PlanFlags = flags.PLAN,
    job: flags.InferenceFlags = flags.INFERENCE,
    objective: flags.Objective = flags.OBJECTIVE,
    answering: flags.Serving = flags.SERVING,
) -> int:
    """Answer one inference batch in one line."""
    from rapid_llm.cli.answering import answer_job

    if objective.slo is not None or objective.users is not None:
        from rapid_llm.cli.capacity import answer_objective

        return answer_objective(model, flags.overrides(system, plan, job), objective, answering)
    return answer_job("inference", model, flags.overrides(system, plan, job), answering)


@fit.command(name="run")
def fit_run(file: File, /, *, fitting: flags.Fitting = flags.FITTING) -> int:
    """Memory of a scenario file; 'rapid-llm fit FILE' says the same."""
    from rapid_llm.cli.answering import fit_file

    return fit_file(file, fitting)


@fit.command(name="train")
def fit_train(
    model: Model,
    /,
    *,
    system: flags.SystemFlags = flags.SYSTEM,
    plan: flags.TrainingPlanFlags = flags.TRAINING_PLAN,
    job: flags.TrainingFlags = flags.TRAINING,
    fitting: flags.Fitting = flags.FITTING,
) -> int:
    """Memory of a training step."""
    from rapid_llm.cli.answering import fit_job

    return fit_job("training", model, flags.overrides(system, plan, job, memory_alone=True), fitting)


@fit.command(name="infer")
def fit_infer(
    model: Model,
    /,
    *,
    system: flags.SystemFlags = flags.SYSTEM,
    plan: flags.PlanFlags = flags.PLAN,
    job: flags.InferenceFlags = flags.INFERENCE,
    fitting: flags.Fitting = flags.FITTING,
) -> int:
    """Memory of an inference batch."""
    from rapid_llm.cli.answering import fit_job

    return fit_job("inference", model, flags.overrides(system, plan, job, memory_alone=True), fitting)


@app.command
def check(file: File, /, *, common: flags.Common = flags.COMMON) -> int:
    """List every named check of a scenario and whether it holds."""
    from rapid_llm.cli.checking import check_file

    return check_file(file, common)


@app.command
def explain(
    file: File,
    /,
    *,
    roofline: Annotated[str | None, Parameter(help="Write a roofline plot of all kernels (HTML).")] = None,
    common: flags.Common = flags.COMMON,
) -> int:
    """Explain an answer down to kernels: what bound each, in words with the formula's numbers."""
    from rapid_llm.cli.explaining import explain_file

    return explain_file(file, common, roofline)


@app.command
def diff(
    a: Annotated[str, Parameter(name="A")], b: Annotated[str, Parameter(name="B")], /, *, json: Json = False
) -> int:
    """Compare two scenarios, or two results that --json printed: what was asked and what came out."""
    from rapid_llm.cli.comparing import compare

    return compare(a, b, as_json=json)


@app.command(name="list")
def list_(
    what: Annotated[str, Parameter(name="WHAT", help="models, systems, accelerators, runtimes, links or kernels.")],
    /,
    *,
    json: Json = False,
) -> int:
    """List the catalogue."""
    from rapid_llm.cli.catalogue import list_names

    return list_names(what, as_json=json)


@app.command
def show(
    what: Annotated[str, Parameter(name="WHAT", help="model, system, accelerator, runtime, link or kernel.")],
    name: Annotated[str, Parameter(name="NAME", help="Catalogue name or file; a model also as a config.json.")],
    /,
    *,
    topology: Annotated[str | None, Parameter(help="Write a system's links as a picture (SVG).")] = None,
    accelerators: Annotated[int | None, Parameter(help="Accelerators in the picture; default: up to 64.")] = None,
    json: Json = False,
) -> int:
    """Show one entry of the catalogue with the source of every number."""
    from rapid_llm.cli.catalogue import show_entry

    return show_entry(what, name, as_json=json, topology=topology, accelerators=accelerators)


@app.command
def completion(shell: Annotated[str, Parameter(name="SHELL", help="bash, zsh or fish.")], /) -> int:
    """Print what lets a shell complete verbs and flags, for source <(rapid-llm completion bash)."""
    shells: tuple[Literal["bash", "zsh", "fish"], ...] = ("bash", "zsh", "fish")
    known = next((one for one in shells if one == shell), None)
    if known is None:
        raise InputError(unknown_name("shell", shell, shells))
    print(app.generate_completion(prog_name="rapid-llm", shell=known))
    return 0


@app.command
def schema() -> int:
    """Print the JSON Schema of a scenario."""
    from rapid_llm.cli.checking import print_schema

    return print_schema()


@app.command
def validate(
    *suites: Annotated[str, Parameter(name="SUITE", help=_SUITES)],
    data: Annotated[str | None, Parameter(help="Folder with larger tables of the same schema.")] = None,
    json: Json = False,
    html: Annotated[str | None, Parameter(help="Write the scorecard as a page.")] = None,
    rows: Annotated[str | None, Parameter(help="Write every row with its prediction (CSV).")] = None,
    quantiles: Annotated[str | None, Parameter(help="Write the error quantiles that answers quote (YAML).")] = None,
    kernel_quantiles: Annotated[str | None, Parameter(help="The same of the suites of kernels.")] = None,
) -> int:
    """Print the scorecard: predictions against published measurements."""
    from rapid_llm.cli.scoring import Files, score

    files = Files(html=html, rows=rows, quantiles=quantiles, kernel_quantiles=kernel_quantiles)
    return score(suites, data=data, as_json=json, files=files)


@network.command(name="collective")
def network_collective(
    op: Annotated[
        str,
        Parameter(
            name="OP",
            help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv; all_to_allv (--matrix); "
            "dispatch, combine (--tokens).",
        ),
    ],
    /,
    *,
    system: Annotated[str, Parameter(help="Name or file of a system.")],
    size: Annotated[str | None, Parameter(help="Message size as nccl-tests counts it, such as 256MiB.")] = None,
    accelerators: Annotated[int | None, Parameter(help="Ranks of the group; default: all.")] = None,
    stride: Annotated[int, Parameter(help="Accelerators between neighbours of a group.")] = 1,
    algorithm: Annotated[str | None, Parameter(help="This one only: a name, or the file of your own.")] = None,
    library: Annotated[
        str | None, Parameter(help="Collective library; default: the vendor's, of experts deepep.")
    ] = None,
    small: Annotated[str | None, Parameter(help="Library for small all-reduces within a node.")] = None,
    links: OnLinks = ON_LINKS,
    tokens: Tokens = TOKENS,
    written: Written = WRITTEN,
) -> int:
    """Time, bandwidth and algorithm of one collective, the other ways to run it, and what each tier carries."""
    from rapid_llm.cli.networking import Group, collective

    group = Group(system, accelerators, stride, library)
    return collective(
        op, group, size=size, small=small, algorithm=algorithm, links=links, tokens=tokens, written=written
    )


@network.command(name="links")
def network_links(
    source: Annotated[
        str, Parameter(name="FILE", help="Edge list or bandwidth matrix, or the name or file of a system.")
    ],
    op: Annotated[str, Parameter(name="OP", help="all_reduce, all_gather, reduce_scatter, all_to_all, ...")],
    /,
    *,
    size: Annotated[str, Parameter(help="Message size as nccl-tests counts it, such as 256MiB.")],
    accelerators: Annotated[
        int | None,
        Parameter(help="Ranks, on the first accelerators; default: all of a file's, of a system 256 at most."),
    ] = None,
    algorithm: Annotated[str | None, Parameter(help="This one only.")] = None,
    routing: Annotated[str, Parameter(help="How links are chosen, or a CSV of routes (from, to, via).")] = "auto",
    traffic: Annotated[str | None, Parameter(help="CSV of other flows from the start (from, to, bytes).")] = None,
    place: Annotated[
        str | None,
        Parameter(
            help="Accelerators of the ranks in order, such as gpu0,gpu2,gpu1,gpu3; or best: those that the traffic of "
            "each algorithm likes best, and what that gains.",
        ),
    ] = None,
    fault: Annotated[
        tuple[str, ...], Parameter(negative=(), show_default=False, help="As of collective; repeatable.")
    ] = (),
    svg: Annotated[str | None, Parameter(help="Write a picture: links shaded by what they carry.")] = None,
    json: Json = False,
) -> int:
    """One collective on links alone, without a library: your own interconnect, routes and background traffic."""
    from rapid_llm.cli.interconnects import links

    return links(
        source,
        op,
        size=size,
        accelerators=accelerators,
        algorithm=algorithm,
        routing=routing,
        traffic=traffic,
        place=place,
        faults=fault,
        svg=svg,
        as_json=json,
    )


@network.command(name="placement")
def network_placement(file: File, /, *, common: flags.Common = flags.COMMON) -> int:
    """The order of parallel axes that a training scenario's own messages like best, and what the step gains."""
    from rapid_llm.cli.placing import placement

    return placement(file, common)


Timings = Annotated[list[str], Parameter(negative=(), help="Table of kernel timings (CSV), one or more.")]
Held = Annotated[list[str] | None, Parameter(negative=(), help="Constant that the fit leaves: rate=0.8.")]
Folder = Annotated[str | None, Parameter(help="Folder for the file that is written; default: here.")]


@calibrate.default
def calibrate_none(
    *,
    emit_benchmark: Annotated[bool, Parameter(negative=(), help="A PyTorch script that times kernels.")] = False,
    out: Annotated[str | None, Parameter(help="File for the script; default: print it.")] = None,
) -> int:
    """Write the benchmark that makes tables for calibrate accelerator and calibrate kernel."""
    if not emit_benchmark:
        raise InputError("calibrate needs a subject: accelerator, kernel or fabric; or --emit-benchmark.")
    from rapid_llm.cli.fitting import emit_benchmark as emit

    return emit(out)


@calibrate.command(name="accelerator")
def calibrate_accelerator(
    name: Annotated[str, Parameter(name="NAME", help="Accelerator that was measured.")],
    /,
    *,
    table: Timings,
    out: Folder = None,
    json: Json = False,
) -> int:
    """Fit an accelerator's sustained numbers to bf16 GEMMs; print unseen errors before and after; write its file."""
    from rapid_llm.cli.fitting import calibrate_accelerator

    return calibrate_accelerator(name, table, out, as_json=json)


@calibrate.command(name="kernel")
def calibrate_kernel(
    name: Annotated[str, Parameter(name="NAME", help="Kernel implementation, cublas say.")],
    /,
    *,
    table: Timings,
    hold: Held = None,
    out: Folder = None,
    json: Json = False,
) -> int:
    """Fit a kernel's constants; print errors on unseen rows before and after; write its file."""
    from rapid_llm.cli.fitting import calibrate_kernel

    return calibrate_kernel(name, table, hold or (), out, as_json=json)


@calibrate.command(name="fabric")
def calibrate_fabric(
    name: Annotated[str, Parameter(name="NAME", help="Name or file of the system that was measured.")],
    /,
    *,
    table: Annotated[str, Parameter(help="CSV of collectives (op, ranks, bytes, time_us), or an nccl-tests log.")],
    library: Annotated[str | None, Parameter(help="Library to start from; default: the vendor's.")] = None,
    link: Annotated[str | None, Parameter(help="Link technology; default: the outermost that the rows use.")] = None,
    op: Annotated[str | None, Parameter(help="Collective, where the log does not say.")] = None,
    ranks: Annotated[int | None, Parameter(help="Ranks, where the log does not say.")] = None,
    out: Annotated[str | None, Parameter(help="Library file to write; default: LIBRARY-NAME.yaml here.")] = None,
    json: Json = False,
) -> int:
    """Fit a collective library's costs on one link; print errors on held-out rows before and after; write the file."""
    from rapid_llm.cli.calibrating import Request, calibrate_fabric

    return calibrate_fabric(name, Request(table, library, link, op, ranks, out), as_json=json)


attach(app)
