"""What a first reader stumbles over: units, axes, plurals, names and files of another kind."""

import json
import re

import pytest

from rapid_llm.hardware.health import Fault, RandomFaults

from .shell import rapid_llm

SERVED = ("--batch-size", "4", "--prompt-tokens", "1024", "--output-tokens", "256")


def test_a_roofline_speaks_of_bandwidth_as_everything_else_does(tmp_path):
    page = tmp_path / "roofline.html"
    assert rapid_llm("explain", "examples/llama-2-70b-inference.yaml", "--roofline", str(page)).code == 0
    text = page.read_text("utf-8")
    assert "B/s" in text
    assert "iB/s" not in text


def test_the_memory_of_a_batch_starts_at_its_prompt(tmp_path):
    page = tmp_path / "memory.html"
    asked = ("infer", "llama-3.1-8b", "--accelerator", "h100-sxm", *SERVED, "--memory-timeline", str(page))
    assert rapid_llm(*asked).code == 0
    marks = [int(mark) for mark in re.findall(r'text-anchor="middle"[^>]*>(\d+)</text>', page.read_text("utf-8"))]
    assert 900 < min(marks) <= 1024
    assert max(marks) >= 1280


@pytest.mark.parametrize(("links", "said"), [(3, "3 random links (seed 7) at 25.0 % of their bandwidth"),
                                             (1, "1 random link (seed 7) at 25.0 % of its bandwidth")])  # fmt: skip
def test_random_links_have_their_bandwidth(links, said):
    assert str(Fault(random=RandomFaults(links=links, seed=7), bandwidth=0.25)) == said


def test_checks_that_all_hold_say_so():
    assert rapid_llm("check", "examples/llama-2-70b-inference.yaml").out.rstrip().endswith("checks, all of them hold")


def test_faster_memory_is_called_memory_on_every_device():
    out = rapid_llm("infer", "llama-3.1-8b", "--accelerator", "rtx-4090", "--precision", "fp8", *SERVED).out
    assert "memory bandwidth x2" in out
    assert "HBM" not in out


def test_a_name_is_suggested_as_the_catalogue_spells_it():
    err = rapid_llm("infer", "llama-3.1-8b", "--accelerator", "m3-mx", *SERVED).err
    assert "Did you mean 'apple-m3-max'?" in err


@pytest.mark.parametrize(("lines", "kind"), [("base: h100-sxm\npeak: {bf16: 1 PFLOP/s}\n", "an accelerator"),
                                             ("base: dgx-h100\nnodes: 4\n", "a system")])  # fmt: skip
def test_a_file_of_another_kind_is_named(tmp_path, lines, kind):
    file = tmp_path / "mine.yaml"
    file.write_text(lines, "utf-8")
    ran = rapid_llm("run", str(file))
    assert ran.code == 2
    assert ran.err.startswith(
        f"{file}: this file describes {kind}, not a scenario. Use it as the system of one: system"
    )


def test_links_are_part_of_the_catalogue():
    listed = json.loads(rapid_llm("list", "links", "--json").out)["links"]
    assert "nvlink4" in listed
    assert "25 GB/s" in rapid_llm("show", "link", "nvlink4").out
    ran = rapid_llm("show", "link", "nvlink44")
    assert (ran.code, "Did you mean 'nvlink4'?" in ran.err) == (2, True)


def test_a_faulted_step_prints_both_policies_and_the_healthy_time():
    out = " ".join(rapid_llm("run", "examples/faulted-training.yaml").out.split())
    said = out[out.index(" faults ") : out.index(" fits ")]
    assert re.search(r"[\d.]+ s without them, x1\.\d+ with them", said)
    assert "re-plan (round degraded links): dp reduce_scatter x1." in said
    assert "by detour)" in said
