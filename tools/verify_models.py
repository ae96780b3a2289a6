"""Compare every parameter count with the implementation in Hugging Face transformers, built on torch's meta device.

Run by ``make verify-models`` in an environment of its own, or::

    python3 -m venv .venv-verify
    .venv-verify/bin/pip install --editable . torch transformers
    .venv-verify/bin/python tools/verify_models.py [--random 5] [config.json or folder of them ...]

Prints a line a model; the exit status is 1 if one differs. A model that transformers lacks is held to the number that
its catalogue file cites. ``--random N`` adds N random small configurations for every architecture that both sides know.
"""

import argparse
import logging
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from rapid_llm.documents import Document, read_yaml
from rapid_llm.errors import RapidError
from rapid_llm.model import document, names, parameters
from rapid_llm.model.fields import ALIASES, CORE, Fields
from rapid_llm.model.huggingface import CLASSES, READERS, model_type, read_document

_OURS = (
    "model_type",
    "architectures",
    "architecture",
    "auto_map",
    "quantization_config",
    "aliases",
    "name",
    "parameters",
)
"""Fields that transformers must not see, or that are ours."""


@dataclass(frozen=True)
class Row:
    """One comparison. ``theirs`` is None where there is nothing to compare with, and ``remark`` says why."""

    name: str
    ours: int | str
    theirs: int | None
    remark: str = ""

    @property
    def verdict(self) -> str:
        """ok, -- (nothing to compare with) or DIFFERS."""
        if self.theirs is None:
            return "--"
        return "ok" if self.ours == self.theirs else "DIFFERS"


def build(kind: str, fields: Mapping[str, Any], named: str = "") -> torch.nn.Module:
    """The model that transformers makes for causal language modelling, else for images and text; without storage.

    Of an encoder, and of a decoder that reads one, the class that a file names. T5 ties its head whatever a file says
    since transformers 5: a head of its own is added back.
    """
    config = AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        if kind in BY_CLASS and hasattr(transformers, named):
            found = getattr(transformers, named)(config)
            if "t5" in kind and fields.get("tie_word_embeddings") is False and hasattr(found, "lm_head"):
                found.own_head = torch.nn.Linear(config.d_model, config.vocab_size, bias=False)
            return found
        for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
            if type(config) in auto._model_mapping:
                return auto.from_config(config)
    raise ValueError("no class for text generation")


def count(model: torch.nn.Module) -> int:
    """Parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def ours(source: Document) -> int | str:
    """Our count, or the sentence of our error."""
    try:
        return parameters(read_document(source))
    except RapidError as error:
        return error.message


BY_CLASS = (
    *("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "modernbert", "eurobert"),
    *("ernie", "megatron-bert", "xlm-roberta-xl", "mpnet", "nomic_bert", "gte"),
    *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "m2m_100", "whisper", "mllama"),
)
"""Values of ``model_type`` whose class is the one that a file names."""


def compare(name: str, source: Document) -> Row:
    """One catalogue entry or configuration against transformers, else against the cited number."""
    kind = model_type(Fields(source.data, source)) or ""
    kind = CLASSES.get(kind, kind)
    cited = source.data.get("parameters")
    try:
        if kind not in CONFIG_MAPPING_NAMES:
            raise ValueError("not in transformers")
        named = next(iter(source.data.get("architectures") or []), "")
        theirs = count(build(kind, {k: v for k, v in source.data.items() if k not in _OURS}, named))
    except Exception as error:  # whatever transformers raises, the cited number still stands
        remark = str(error).splitlines()[0][:60]
        return Row(name, ours(source), cited, f"{remark}; {'cited number' if cited else 'nothing cited'}")
    return Row(name, ours(source), theirs)


def catalogue() -> Iterator[Row]:
    """All catalogue models."""
    for name in names():
        yield compare(name, document(name)[0])


def files(paths: list[Path]) -> Iterator[Row]:
    """The given configurations; of a folder all ``*config.json`` in it."""
    for path in paths:
        for file in sorted(path.glob("*config.json")) if path.is_dir() else [path]:
            yield compare(file.name, read_yaml(file))


_SIZES = {
    "num_hidden_layers": (4, 6, 8),
    "vocab_size": (1000, 300_000),
    "intermediate_size": (96, 192, 640),
    "num_experts": (4, 8),
    "num_experts_per_tok": (2,),
    "moe_intermediate_size": (32, 80),
    "n_shared_experts": (1, 2),
}
_FLAGS = (
    "bias",
    "tie_word_embeddings",
    "qk_layernorm",
    "use_qk_norm",
    "parallel",
    "multi_query",
    "new_decoder",
    "rms_norm",
)


def sample(kind: str, rng: random.Random) -> dict[str, Any]:
    """A small random configuration: sizes, heads, and every flag for biases, norms and ties."""
    defaults = AutoConfig.for_model(kind).to_dict()

    def spelling(name: str) -> str | None:
        return next((s for s in (name, *ALIASES.get(name, ())) if s in defaults), None)

    heads = rng.choice((4, 8))
    chosen = {name: rng.choice(values) for name, values in _SIZES.items()}
    chosen |= {"num_attention_heads": heads, "hidden_size": heads * rng.choice((16, 32, 64))}
    chosen["num_key_value_heads"] = rng.choice((1, 2, heads))
    found = {s: value for name, value in chosen.items() if (s := spelling(name)) and defaults[s] is not False}
    for name, value in defaults.items():
        if isinstance(value, bool) and any(word in name for word in _FLAGS):
            found[name] = rng.random() < 0.5
    return found


def randomised(times: int) -> Iterator[Row]:
    """Random configurations of every decoder that both sides know; those that transformers refuses are passed over."""
    for kind in (kind for kind in READERS if kind in CONFIG_MAPPING_NAMES):
        rng = random.Random(kind)
        for attempt in range(times):
            try:
                fields = sample(kind, rng)
                model = build(kind, fields)
            except Exception:  # a combination that the implementation itself cannot build
                continue
            full = {key: value for key, value in model.config.to_dict().items() if key in CORE}
            data = {"model_type": kind, **full, **fields}
            if kind == "nemotron_h":
                data["layers_block_type"] = model.config.layers_block_type
            yield Row(f"{kind} #{attempt}", ours(Document(data=data, file=kind)), count(model), str(fields))


def main() -> int:
    """Print the table; 1 if a count differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="config.json files or folders of them")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="random configurations an architecture")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    totals = {"ok": 0, "--": 0, "DIFFERS": 0}
    for rows in (catalogue(), files(options.paths), randomised(options.random)):
        for row in rows:
            totals[row.verdict] += 1
            if row.verdict == "ok" and "#" in row.name:
                continue
            given = f"{row.ours:>17,}" if isinstance(row.ours, int) else f"{row.ours:>17}"
            theirs = f"{row.theirs:>17,}" if row.theirs is not None else f"{'':>17}"
            print(f"{row.verdict:8}{row.name:60.60}{given} {theirs}  {row.remark}".rstrip(), flush=True)
    print(f"{totals['ok']} equal, {totals['--']} with nothing to compare with, {totals['DIFFERS']} differ")
    return 1 if totals["DIFFERS"] else 0


if __name__ == "__main__":
    sys.exit(main())
