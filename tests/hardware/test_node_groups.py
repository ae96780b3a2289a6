"""Systems of several groups of nodes, as users write them."""

import pytest

from rapid_llm import hardware
from rapid_llm.documents import parse_yaml
from rapid_llm.errors import InputError
from rapid_llm.hardware import System, build_system, node_starts, part_of

TRY = "Try groups: [{node: dgx-h100, nodes: 4}, {node: dgx-a100, nodes: 4}]."
TWO = "groups: [{node: dgx-h100, nodes: 4}, {node: dgx-h100, nodes: 2}]"


def read(text: str) -> System:
    return build_system(parse_yaml(text, file="system.yaml"))


def test_groups_take_nodes_and_networks_of_the_catalogue():
    system = read("groups: [{node: dgx-h100, nodes: 4}, {node: dgx-a100, nodes: 2}]")
    h100, a100 = system.groups
    assert (h100.node, h100.count, h100.name) == (hardware.system("dgx-h100").groups[0].node, 4, "dgx-h100")
    assert (a100.node, a100.count, a100.name) == (hardware.system("dgx-a100").groups[0].node, 2, "dgx-a100")
    assert h100.fabric == system.fabric == hardware.system("dgx-h100").fabric
    assert (system.accelerators, system.ends) == (48, (32, 48))
    assert system.mixed


def test_groups_in_words():
    system = hardware.system("4x dgx-h100 + 2x dgx-a100")
    assert system.name == "4x dgx-h100 + 2x dgx-a100"
    assert system.groups == read("groups: [{node: dgx-h100, nodes: 4}, {node: dgx-a100, nodes: 2}]").groups


@pytest.mark.parametrize(
    ("name", "tried"),
    [
        ("8x h100-sxm", "system: dgx-h100 and accelerators: 8"),
        ("8x NVIDIA H100 80GB HBM3", "system: dgx-h100 and accelerators: 8"),
        ("2x dgx-h100", "system: dgx-h100 and accelerators: 16"),
        ("4x rtx-3060", "system: {node: {accelerator: rtx-3060, accelerators: 4}}"),
    ],
)
def test_a_number_of_one_thing_is_no_system(name, tried):
    with pytest.raises(InputError) as error:
        hardware.system(name)
    assert str(error.value) == (
        f"system '{name}': Nx NAME is a group of nodes beside another, as in 4x dgx-h100 + 4x dgx-a100. Try {tried}."
    )


def test_names_with_an_x_are_no_numbers():
    assert hardware.system("1x h100-sxm") == hardware.system("h100-sxm")
    assert hardware.system("7900 XTX").name == "rx-7900-xtx"
    with pytest.raises(InputError, match="system '4x nothing' does not say its groups of nodes"):
        hardware.system("4x nothing")


def test_a_group_may_change_what_it_takes():
    system = read("groups: [{base: dgx-h100, accelerator: h200-sxm, nodes: 1}, {node: rtx-4090, nodes: 2}]")
    assert [g.node.accelerator.name for g in system.groups] == ["h200-sxm", "rtx-4090"]
    assert system.groups[1].node.accelerators == 1
    given = "fabric: {topology: leaf-spine, oversubscription: 2}"
    whole = read(f"groups: [{{node: dgx-h100, nodes: 1}}, {{node: dgx-a100, nodes: 1}}]\n{given}")
    assert [group.fabric for group in whole.groups] == [None, None]
    assert whole.fabric is not None
    assert whole.fabric.oversubscription == 2


def test_equal_groups_are_one_and_links_keep_them_apart():
    system = read(TWO)
    assert [group.name for group in system.groups] == ["dgx-h100", "dgx-h100-2"]
    assert not system.mixed
    (whole,) = part_of(system, 48).groups
    assert (whole.count, whole.node) == (6, system.groups[0].node)
    apart = read(f"{TWO}\nlinks: [{{bandwidth: 10 GB/s, latency: 5 ms}}]")
    assert apart.mixed
    assert len(part_of(apart, 48).groups) == 2
    assert len(part_of(apart, 32).groups) == 1


def test_the_link_that_names_both_groups_comes_before_the_one_for_all():
    system = read(
        "groups: [{name: a, node: dgx-h100, nodes: 1}, {name: b, node: dgx-h100, nodes: 1}, "
        "{name: c, node: dgx-h100, nodes: 1}]\n"
        "links: [{bandwidth: 10 GB/s}, {bandwidth: 20 GB/s, between: [c, a]}]"
    )
    rates = [link.bandwidth for link in (system.link(0, 1), system.link(0, 2), system.link(1, 2)) if link]
    assert rates == [10e9, 20e9, 10e9]


def test_nodes_are_counted_through_the_groups():
    system = read("groups: [{node: dgx-h100, nodes: 2}, {node: {accelerator: a100-sxm, accelerators: 4}, nodes: 2}]")
    assert node_starts(system) == (0, 8, 16, 20, 24)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("groups: [{node: dgx-h100, nodes: 4}, {node: dgx-a10, nodes: 4}]",
         "system.yaml:1: system 'dgx-a10' is not in the catalogue. Did you mean 'dgx-a100'? "
         "A path to a YAML file works too."),
        ("groups: [dgx-h100]",
         f"system.yaml:1: groups[0] must say its node and how many there are (got 'dgx-h100'). {TRY}"),
        ("groups: [{node: dgx-h100}]",
         f"system.yaml:1: groups[0].nodes is missing: how many nodes the group has. {TRY}"),
        ("groups: [{node: dgx-h100, nods: 4, nodes: 4}]",
         "system.yaml:1: unknown field 'groups[0].nods'. Did you mean 'nodes'?"),
        ("groups: [{node: dgx-h100, nodes: x}]", "system.yaml:1: groups[0].nodes must be an integer (got 'x')."),
        ("groups: 3", f"system.yaml:1: groups must be a list of groups of nodes (got 3). {TRY}"),
        ("groups: []", f"system.yaml:1: groups must be a list of groups of nodes (got []). {TRY}"),
        ("nodes: 4\ngroups: [{node: dgx-h100, nodes: 1}]",
         f"system.yaml:1: nodes goes with one group of nodes, and groups has its own. {TRY}"),
        ("groups: [{groups: [], nodes: 1}]", f"system.yaml:1: groups[0] must be one group of equal nodes. {TRY}"),
        ("groups: [{name: a, node: dgx-h100, nodes: 1}, {name: a, node: dgx-a100, nodes: 1}]",
         "system.yaml:1: groups[1].name 'a' is taken. Try a-2."),
        (f"{TWO}\nlinks: [{{bandwidth: 10 GB/s, between: [dgx-h100, dgx-h200]}}]",
         "system.yaml:2: links[0].between 'dgx-h200' is unknown. Did you mean 'dgx-h100'? "
         "Known: dgx-h100, dgx-h100-2."),
        (f"{TWO}\nlinks: [{{bandwidth: 10 GB/s, between: [dgx-h100]}}]",
         "system.yaml:2: links[0].between must name the two groups that the link joins (got ['dgx-h100']). "
         "Try [dgx-h100, dgx-h100-2]."),
        (f"{TWO}\nlinks: [{{bandwidth: 10 GB/s}}, {{bandwidth: 1 GB/s}}]",
         "system.yaml:2: links[1] joins every two groups, which links[0] does. "
         "Try one link with the bandwidth of both."),
        (f"{TWO}\nlinks:\n- {{bandwidth: 10 GB/s, between: [dgx-h100, dgx-h100-2]}}\n"
         "- {bandwidth: 1 GB/s, between: [dgx-h100-2, dgx-h100]}",
         "system.yaml:4: links[1] joins dgx-h100-2 and dgx-h100, which links[0] does. "
         "Try one link with the bandwidth of both."),
        (f"{TWO}\nlinks: [{{bandwidth: 10}}]",
         "system.yaml:2: links[0].bandwidth needs a unit, such as '3.35 TB/s' (got 10)."),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(text: str, sentence: str):
    with pytest.raises(InputError) as error:
        read(text)
    assert str(error.value) == sentence
