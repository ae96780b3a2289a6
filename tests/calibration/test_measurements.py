"""Tables and nccl-tests logs as measurements."""

import gzip

import pytest

from rapid_llm.calibration import Measurement, read
from rapid_llm.errors import InputError

LOG = """\
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20
#  Rank  0 Group  0 Pid  12 on     node0 device  0 [0x0f] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  13 on     node1 device  0 [0x0f] NVIDIA H100 80GB HBM3
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     0.21    0.00    0.00      0     0.19    0.00    0.00      0
        1024           256     float     sum      -1    32.45    0.03    0.06      0    32.35    0.03    0.06      0
     1048576        262144     int32     sum      -1    171.5    6.11   10.70      0    171.3    6.12   10.71    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 5.38
"""


def test_an_nccl_tests_log(tmp_path):
    file = tmp_path / "log.txt"
    file.write_text(LOG)
    assert read(file) == [
        Measurement("all_reduce", 1024, 2, pytest.approx(32.45e-6), integer=False),
        Measurement("all_reduce", 1048576, 2, pytest.approx(171.5e-6), integer=True),
    ]


def test_what_a_log_leaves_out_can_be_said(tmp_path):
    file = tmp_path / "log.txt"
    bare = "\n".join(line for line in LOG.splitlines() if "Rank" not in line and "_perf" not in line)
    file.write_text(bare)
    with pytest.raises(
        InputError, match=r"log\.txt does not say which collective it timed; add --op, such as --op all_re"
    ):
        read(file)
    with pytest.raises(InputError, match=r"log\.txt does not list its ranks; add --ranks\.$"):
        read(file, op="all_reduce")
    assert {(m.op, m.ranks) for m in read(file, op="alltoall", ranks=16)} == {("all_to_all", 16)}


@pytest.mark.parametrize("before", ["[1,0]<stdout>:", "Thu Jul 18 15:41:05 2024<stdout>:", "[0] "])
def test_what_launchers_write_before_a_line_is_dropped(tmp_path, before):
    file = tmp_path / "log.txt"
    file.write_text("".join(f"{before}{line}\n" for line in LOG.splitlines()))
    assert [(m.op, m.ranks, m.size) for m in read(file)] == [("all_reduce", 2, 1024), ("all_reduce", 2, 1048576)]


def test_each_test_of_a_log_has_its_own_operation_and_ranks(tmp_path):
    more = LOG.replace("all_reduce", "alltoall").replace("#  Rank  1", "#  Rank  2 Group  0 Pid  1 on n\n#  Rank  1")
    file = tmp_path / "log.txt"
    file.write_text(LOG + more)
    assert [(m.op, m.ranks) for m in read(file)] == [("all_reduce", 2)] * 2 + [("all_to_all", 3)] * 2


def test_the_header_says_where_the_time_stands(tmp_path):
    file = tmp_path / "all_gather_perf.log"
    old = LOG.replace("_perf", "").replace("    root", "        ").replace("      -1", "        ")
    file.write_text(old + "     2097152        524288     flo")  # the last line was cut
    assert [m.seconds for m in read(file)] == pytest.approx([32.45e-6, 171.5e-6])
    file.write_text("\n".join(line for line in old.splitlines() if "size" not in line))
    with pytest.raises(InputError, match=r"^an nccl-tests log needs its header \('# size count type redop root time"):
        read(file)


def test_a_table_of_either_schema(tmp_path):
    ours, logs = tmp_path / "a.csv.gz", tmp_path / "b.csv"
    head = "lib,op,dtype,ngpus,bytes,latency_us\n"
    ours.write_bytes(gzip.compress((head + "nccl,alltoall,int8,8,1024,9\ncustom,all_reduce,fp16,8,1024,5\n").encode()))
    logs.write_text("collective,ranks,bytes,time_us\nsendrecv,2,4096.0,12\nall_reduce,1,4096,3\nall_gather,8,4096,x\n")
    assert read(ours) == [Measurement("all_to_all", 1024, 8, pytest.approx(9e-6), integer=True)]
    with pytest.raises(InputError, match="has a cell that is no number"):
        read(logs)
    logs.write_text("collective,ranks,bytes,time_us\nsendrecv,2,4096.0,12\n")
    assert read(logs) == [Measurement("send_recv", 4096, 2, pytest.approx(12e-6))]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty."),
        ("a,b\n", "has no column for op: name one op or collective, or give an nccl-tests log."),
        ("op,ranks,bytes\n", "has no column for time: name one time_us or latency_us, or give an nccl-tests log."),
        ("op,ranks,bytes,time_us\n", "holds no measurement that can be used."),
        ("op,ranks,bytes,time_us\nall_reduce,2.5,8,1\n", "has 2.5 ranks in a row."),
        ("op,ranks,bytes,time_us\nall_reduce,8,1024,inf\n", "holds no measurement that can be used."),
        ("op,ranks,bytes,time_us\nall_reduce,8,1024,1e-30\n", "t.csv:2: a collective cannot take 1e-30 us: times are"),
        ("op,ranks,bytes,time_us\nall_reduce,8,1024,1e30\n", "in microseconds, from 0.1 us to 1000 s."),
        ("op,ranks,bytes,time_us\ngather,2,8,1\n", "collective 'gather' is unknown. Known: all_reduce, "),
    ],
)
def test_a_bad_table_is_one_sentence(tmp_path, text, sentence):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read(file)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(("data", "why"), [(b"\x89PNG\xff\xfe", "not text in UTF-8"), (b"PK\x03\x00", "not text")])
def test_a_file_that_is_no_text(tmp_path, data, why):
    file = tmp_path / "t.csv"
    file.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read(file)
    assert str(caught.value) == f"{file}: cannot be read: it is {why}."


def test_a_file_that_is_not_there():
    with pytest.raises(InputError, match=r"^nowhere\.csv: no such file\.$"):
        read("nowhere.csv")
