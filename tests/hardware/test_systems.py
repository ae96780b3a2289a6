"""Every system file, systems of one, and what a person may change in a mapping."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapid_llm import hardware
from rapid_llm.documents import Document, parse_yaml
from rapid_llm.errors import InputError

NAMES = hardware.system_names()
every = pytest.mark.parametrize("name", NAMES)

FABRIC_LINKS = {
    "infiniband-hdr", "infiniband-ndr", "infiniband-xdr", "roce-400", "efa-v1", "efa-v2", "efa-v3", "efa-v4",
    "slingshot-11", "gpudirect-tcpx-200g", "ethernet-100g", "gaudi-roce",
}  # fmt: skip

# accelerators of a node, network cards of a node, accelerator: vendors' and clouds' documentation of each
GOLDEN = {
    "dgx-a100": (8, ("infiniband-hdr", 8), "a100-sxm"),
    "selene": (8, ("infiniband-hdr", 8), "a100-sxm"),
    "p3dn": (8, ("efa-v1", 1), "v100-sxm"),
    "dgx-2": (16, ("infiniband-hdr", 8), "v100-sxm"),
    "trn1": (32, ("efa-v1", 8), "trainium1"),
    "trn2": (64, ("efa-v3", 16), "trainium2"),
    "dgx-h100": (8, ("infiniband-ndr", 8), "h100-sxm"),
    "dgx-b200": (8, ("infiniband-ndr", 8), "b200-sxm"),
    "gb200-nvl72": (72, ("infiniband-ndr", 72), "gb200"),
    "gb300-nvl72": (72, ("infiniband-xdr", 72), "gb300"),
    "p4d": (8, ("efa-v1", 4), "a100-sxm-40gb"),
    "p5": (8, ("efa-v2", 32), "h100-sxm"),
    "p5en": (8, ("efa-v3", 16), "h200-sxm"),
    "p6-b200": (8, ("efa-v4", 8), "b200-sxm"),
    "a3-ultra": (8, ("roce-400", 8), "h200-sxm"),
    "a4-high": (8, ("roce-400", 8), "b200-sxm"),
    "oci-h100": (8, ("roce-400", 16), "h100-sxm"),
    "azure-nd-h200-v5": (8, ("infiniband-ndr", 8), "h200-sxm"),
    "azure-nd-mi300x-v5": (8, ("infiniband-ndr", 8), "mi300x"),
    "a3-high": (8, ("gpudirect-tcpx-200g", 4), "h100-sxm"),
    "a3-mega": (8, ("gpudirect-tcpx-200g", 8), "h100-sxm"),
    "lumi-g": (8, ("slingshot-11", 4), "mi250x"),
}


def test_there_are_enough() -> None:
    assert len(NAMES) >= 16


@every
def test_loads_under_its_own_name(name: str) -> None:
    system = hardware.system(name)
    assert system.name == name
    assert system is hardware.system(name)
    assert hash(system) == hash(hardware.system(name))


@every
def test_every_number_has_a_source(name: str) -> None:
    document, sources = hardware.entry("system", name)
    assert sources["node.accelerators"].text
    assert all(source.text for source in sources.values())
    if "nodes" in document.data:
        assert "nodes" in sources


@every
def test_many_nodes_have_cards_or_a_torus(name: str) -> None:
    system = hardware.system(name)
    (group,) = system.groups
    if group.count > 1:
        assert system.fabric is not None
        assert system.fabric.topology == "torus" or group.node.nics is not None
    if group.node.nics:
        assert group.node.nics.link in FABRIC_LINKS


@every
def test_a_scale_up_fabric_has_a_port_to_plug_in(name: str) -> None:
    node = hardware.system(name).groups[0].node
    port, fabric = node.accelerator.scale_up, node.scale_up
    if fabric.topology != "none":
        assert node.accelerators > 1
        assert port is not None
        assert fabric.link in (None, port.link)
        assert (fabric.bandwidth or port.bandwidth) <= port.bandwidth
    if fabric.topology == "pairs":
        assert node.accelerators % (fabric.group or 2) == 0


@every
def test_the_network_is_slower_than_the_scale_up_port(name: str) -> None:
    node = hardware.system(name).groups[0].node
    if node.nics and node.scale_up.topology != "none":
        few = {"p3dn": 8, "trn1": 4, "trn2": 4}  # one card a node; one for the cores of two chips, of one
        assert node.nics.count >= node.accelerators / few.get(name, 2)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values(name: str) -> None:
    node = hardware.system(name).groups[0].node
    count, cards, accelerator = GOLDEN[name]
    assert node.accelerators == count
    assert node.nics is not None
    assert (node.nics.link, node.nics.count) == cards
    assert node.accelerator == hardware.accelerator(accelerator)


@pytest.mark.parametrize("name", hardware.accelerator_names())
def test_an_accelerator_is_a_system_of_one(name: str) -> None:
    system = hardware.system(name)
    assert system.accelerators == 1
    assert system.name == name
    assert system.groups[0].node.host_link.link == hardware.accelerator(name).host_link


def test_aliases_reach_both_catalogues() -> None:
    assert hardware.system("aws-p5") is hardware.system("p5")
    assert hardware.system("A100-SXM4-80GB").name == "a100-sxm"
    assert hardware.sources("system", "H100") == hardware.sources("accelerator", "h100-sxm")


def test_names_do_not_collide() -> None:
    taken = {*NAMES, *hardware.accelerator_names()}
    assert len(taken) == len(NAMES) + len(hardware.accelerator_names())
    taken |= {alias.casefold() for name in hardware.accelerator_names() for alias in hardware.accelerator(name).aliases}
    aliases = [alias for name in NAMES for alias in hardware.entry("system", name)[0].data.get("aliases", ())]
    assert len(aliases) == len({alias.casefold() for alias in aliases} - taken)


@pytest.mark.parametrize(
    ("given_name", "sentence"),
    [
        (
            "dgx-h10",
            "system 'dgx-h10' is not in the catalogue. Did you mean 'dgx-h100'? A path to a YAML file works too.",
        ),
        (
            "h100-smx",
            "system 'h100-smx' is not in the catalogue. Did you mean 'h100-sxm'? A path to a YAML file works too.",
        ),
    ],
)
def test_unknown_name(given_name: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        hardware.system(given_name)
    assert str(caught.value) == sentence
    assert caught.value.exit_code == 2


def test_a_mapping_may_change_the_accelerator_by_name() -> None:
    built = hardware.build_system(_document("base: dgx-h100\naccelerator: h200-sxm"))
    assert built.groups[0].node.accelerator == hardware.accelerator("h200-sxm")
    assert built.groups[0].node.nics == hardware.system("dgx-h100").groups[0].node.nics


def test_a_mapping_may_change_one_number_of_the_accelerator() -> None:
    text = """
    base: dgx-h100
    name: wide
    accelerator: {base: h100-sxm, memory: {hbm: {bandwidth: 4 TB/s}}}
    """
    one = hardware.build_system(_document(text)).groups[0].node.accelerator
    usual = hardware.accelerator("h100-sxm")
    assert one.memory.hbm.bandwidth == 4e12
    assert one.memory.hbm.capacity == usual.memory.hbm.capacity
    assert one.sustained == usual.sustained


def test_a_ten_line_device_takes_the_rest_from_its_architecture(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(_DEVICE)
    one = hardware.accelerator(str(file))
    assert one.vendor == "NVIDIA"
    assert one.sustained.launch == 2e-6
    assert one.memory.shared_per_unit == 228 * 1024
    assert hardware.entry("accelerator", str(file))[1]["sustained.launch"].kind == "architecture"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("architecture: hopper", "architecture: hoper"),
            "architecture 'hoper' is not known, so the accelerator must give 'vendor' and "
            "'sustained'. Did you mean 'hopper'?",
        ),
        (
            ("limit: 500 W", "limit: 500"),
            "power.limit needs a unit, such as '700 W' (got 500).",
        ),
    ],
)
def test_a_wrong_device_file(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(_DEVICE.replace(*change))
    with pytest.raises(InputError) as caught:
        hardware.accelerator(str(file))
    assert caught.value.message == message
    assert caught.value.file == str(file)
    assert caught.value.line is not None


def test_a_wrong_accelerator_in_a_system_names_its_line() -> None:
    with pytest.raises(InputError) as caught:
        hardware.build_system(_document("base: dgx-h100\naccelerator: h100-smx", "mine.yaml"))
    assert str(caught.value) == (
        "mine.yaml:2: accelerator 'h100-smx' is not in the catalogue. Did you mean 'h100-sxm'? "
        "See: rapid-llm list accelerators"
    )


@given(nodes=st.integers(1, 10_000), accelerators=st.integers(1, 128))
def test_a_system_has_nodes_times_accelerators(nodes: int, accelerators: int) -> None:
    data = {"base": "dgx-h100", "nodes": nodes, "node": {"accelerators": accelerators}}
    assert hardware.build_system(Document(data=data)).accelerators == nodes * accelerators


def _document(text: str, file: str | None = None) -> Document:
    return parse_yaml(text, file)


_DEVICE = """
name: mine
source: a made-up device
architecture: hopper
compute_units: 100
clocks: {base: 1 GHz, boost: 1.5 GHz}
peak: {bf16: 614 TFLOP/s}
vector: 40 TFLOP/s
memory: {hbm: {capacity: 100 GB, bandwidth: 3 TB/s}, withheld: 2 GB}
host_link: pcie5-x16
power: {limit: 500 W}
"""


@pytest.mark.parametrize(
    ("name", "total", "part"),
    [
        ("gb200-nvl72", 64, 72),  # inside a rack
        ("gb200-nvl72", 144, 72),
        ("gb200-nvl72", 128, 64),
        ("gb200-nvl72", 256, 64),
        ("gb200-nvl72", 512, 64),
        ("gb200-nvl72", 73, 72),  # no equal parts
        ("dgx-h100", 12, 8),  # a server is not shared
    ],
)
def test_jobs_take_equal_parts_of_racks(name, total, part):
    system = hardware.system(name)
    met = hardware.shared_racks(system, total).groups[0].node
    whole = system.groups[0].node
    assert met.accelerators == part
    assert met.nics.count * whole.accelerators == whole.nics.count * part
    assert met.host_memory_bandwidth / part == pytest.approx(whole.host_memory_bandwidth / whole.accelerators)
