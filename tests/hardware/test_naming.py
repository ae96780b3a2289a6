"""Names as drivers, tables and people write them."""

import pytest

from rapid_llm import hardware
from rapid_llm.errors import InputError


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),  # nvidia-smi
        ("NVIDIA H100 80GB PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL 94GB", "h100-nvl"),
        ("a100 40gb", "a100-sxm-40gb"),
        ("NVIDIA GB200 SXM 186GB (NVL72)", "gb200"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx-3080-ti"),
        ("RTX5090 32GB", "rtx-5090"),
        ("AMD Instinct MI300X 192GB (OAM)", "mi300x"),
        ("Intel Gaudi 2 96GB", "gaudi2"),
        ("M2 Ultra 76\u2011Core GPU 192GB", "apple-m2-ultra"),
        ("Google TPU v5e", "tpu-v5e"),
        ("Tesla V100-SXM2-16GB", "v100-sxm-16gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("AWS Trainium2", "trainium2"),
    ],
)
def test_a_written_name_means_one_accelerator(written, name):
    assert hardware.accelerator(written).name == name
    assert hardware.system(written).groups[0].node.accelerator.name == name


@pytest.mark.parametrize(
    "written",
    [
        "RTX 4070 Ti SUPER",  # another product
        "NVIDIA L40S 24GB",  # another memory
        "NVIDIA H1000",
        "AMD MI250 128GB",  # two of the catalogue's
        "80GB",
    ],
)
def test_a_name_that_means_none_is_refused(written):
    with pytest.raises(InputError, match="is not in the catalogue"):
        hardware.accelerator(written)


def test_every_name_means_itself_in_words():
    for name in hardware.accelerator_names():
        assert hardware.accelerator(name.replace("-", " ").upper()).name == name
