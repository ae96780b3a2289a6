"""The line that every ``--help`` ends with: a command that answers as it stands."""

from collections.abc import Mapping
from typing import Final

from cyclopts import App

_TRAIN = (
    "train llama-3.1-70b --system dgx-h100 --accelerators 64 --tp 8 --pp 2 "
    "--global-batch-size 512 --sequence-length 8192"
)
_INFER = "infer llama-3.1-8b --accelerator h100-sxm --batch-size 32 --prompt-tokens 1024 --output-tokens 256"
_FILE = "examples/llama-3.1-70b-training.yaml"

STARTS: Final[Mapping[str, str]] = {
    "": _TRAIN,
    "train": _TRAIN,
    "infer": _INFER,
    "run": f"run {_FILE}",
    "fit": f"fit {_FILE}",
    "fit run": f"fit {_FILE}",
    "fit train": f"fit {_TRAIN}",
    "fit infer": f"fit {_INFER}",
    "check": f"check {_FILE}",
    "explain": f"explain {_FILE}",
    "diff": f"diff {_FILE} examples/faulted-training.yaml",
    "list": "list models",
    "show": "show accelerator h100-sxm",
    "schema": "schema",
    "completion": "completion bash",
    "validate": "validate training",
    "network": "network collective all_reduce --system dgx-h100 --size 256MiB --accelerators 64",
    "network collective": "network collective all_reduce --system dgx-h100 --size 256MiB --accelerators 64",
    "network links": "network links dgx-h100 all_reduce --size 256MiB --accelerators 16",
    "network placement": f"network placement {_FILE}",
    "kernel": "kernel gemm --m 4096 --n 4096 --k 4096 --accelerator h100-sxm",
    "calibrate": "calibrate --emit-benchmark --out benchmark.py",
}
"""Verbs, and what to start from. A verb that is not here (it needs a table of one's own) says what its group does."""


def attach(app: App, verb: str = "") -> None:
    """Give an app and all that is below it their lines."""
    if verb in STARTS:
        app.help_epilogue = f"Start here: rapid-llm {STARTS[verb]}"
    for name in app:
        if not name.startswith("-"):
            attach(app[name], f"{verb} {name}".strip())
