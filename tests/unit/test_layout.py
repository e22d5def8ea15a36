"""What `Layout` promises, one test per promise."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from fabric import InfeasibleError, ModelError
from fabric.training import Layout, Model

LLAMA = Model.listed("llama-3.1-70b")


def test_every_word_is_read_in_either_form_and_any_order():
    text = "tp8 sp pp16 vpp1 dp128 cp1 ep1 etp1 zero1 mb1 gbs2048 seq8192 bf16 recompute=selective"
    layout = Layout.parse(text)
    assert (layout.tp, layout.sp, layout.pp, layout.dp, layout.zero) == (8, True, 16, 128, 1)
    assert (layout.mb, layout.gbs, layout.seq, layout.dtype) == (1, 2048, 8192, "bf16")
    assert layout.recompute == "selective"
    other = re.sub(r"([a-z])(\d+)(?= )", r"\1=\2", text).replace("bf=16", "dtype=bf16")
    assert other.startswith("tp=8 sp pp=16 ")
    assert Layout.parse(" ".join(other.split()[::-1])) == layout


def test_what_is_left_out_is_filled_and_told():
    layout = Layout.parse("tp2 gbs8 seq128 fp8")
    assert (layout.pp, layout.mb, layout.zero, layout.sp) == (1, 1, 0, False)
    assert (layout.recompute, layout.schedule) == ("none", "1f1b")
    assert layout.filled == (
        "pp1", "vpp1", "dp1", "cp1", "ep1", "etp1", "zero0", "mb1", "recompute=none",
        "schedule=1f1b",
    )  # fmt: skip


def test_batch_and_sequence_have_no_default():
    with pytest.raises(ModelError, match="does not say `gbs` and `seq`, which have no default"):
        Layout.parse("tp8")


SIZE = st.integers(1, 64)
FIELDS = st.fixed_dictionaries(
    dict.fromkeys(("gbs", "seq", "tp", "vpp", "dp", "cp", "mb"), SIZE)
    | {
        "pp": st.integers(2, 64),
        "sp": st.booleans(),
        "zero": st.integers(0, 3),
        "dtype": st.sampled_from(["bf16", "fp16", "fp8", "fp32"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
    }
)


@given(FIELDS)
def test_the_text_of_a_layout_is_read_back_as_the_same(fields):
    layout = Layout(**fields)
    assert Layout.parse(str(layout)) == layout
    assert Layout.parse(str(layout)).filled == ()


def test_all_faults_of_a_text_are_told_at_once():
    with pytest.raises(ModelError) as error:
        Layout.parse("tp8 tp=4 zro1 mb0 mb2,000 bf15 zero4 recompute=ful gpipe sp=2 dp=auto")
    text = str(error.value)
    for part in (
        "'zro1' is not known. Did you mean 'zero'?",
        "'mb0': `mb` needs a whole number of 1 or more, as `mb8`",
        "'mb2,000': `mb` needs",
        "'bf15' is not known",
        "`zero` is 0, 1, 2 or 3",
        "'recompute=ful': Did you mean 'full'? Known: 'none', 'selective' and 'full'",
        "'gpipe' is not known. Did you mean `schedule=gpipe`?",
        "`sp` stands alone",
        "`tp` is said 2 times: 'tp8' and 'tp=4'",
        "does not say `gbs` and `seq`",
        "`dp=auto` needs the number of GPUs",
    ):
        assert part in text


def test_dp_auto_is_what_the_gpus_leave():
    layout = Layout.parse("tp8 pp4 dp=auto gpus=992 gbs992 seq8192")
    assert (layout.dp, layout.gpus) == (31, 992)
    assert "dp31" in layout.filled
    assert Layout.parse("tp8 pp4 dp=auto gbs992 seq8192", gpus=992) == layout
    with pytest.raises(ModelError, match=r"= 32 does not divide 1,000 GPUs. Use 992 or 1,024 GPUs"):
        Layout.parse("tp8 pp4 dp=auto gpus=1000 gbs8 seq8")
    with pytest.raises(ModelError, match=r"`gpus=16`, but tp x cp x pp x dp = 8. Use `dp=auto`"):
        Layout.parse("tp8 gpus=16 gbs8 seq8")


def test_experts_are_refused_by_name():
    with pytest.raises(ModelError, match="`ep=8` and `etp=2`: expert parallelism is not supported"):
        Layout.parse("ep8 etp2 gbs8 seq8")


def test_schedules_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match="`pp=1` has no pipeline"):
        Layout.parse("vpp2 gbs8 seq8")
    with pytest.raises(ModelError, match="a form of 1f1b"):
        Layout.parse("pp2 vpp2 schedule=gpipe gbs8 seq8")
    with pytest.raises(ModelError, match=r"(?s)Layout\(tp=...\).*Did you mean 'bf16'"):
        Layout(gbs=1, seq=1, tp=0, dtype="bf61")


def test_gpus_microbatches_and_tokens():
    layout = Layout.parse("tp8 cp2 pp4 dp3 mb2 gbs24 seq64")
    assert (layout.gpus, layout.microbatches, layout.tokens) == (192, 4, 1536)
    assert layout.shards == 6


def test_tp8_pp4_dp3_makes_32_groups_of_3():
    layout = Layout.parse("tp8 pp4 dp3 gbs3 seq64")
    assert layout.groups("dp").shape == (32, 3)
    assert layout.groups("tp").shape == (12, 8)
    assert layout.groups("pp").shape == (24, 4)


def test_ranks_of_groups_follow_the_written_order():
    layout = Layout.parse("tp2 cp3 dp5 pp7 gbs5 seq64")
    tp, cp, dp, pp = 2, 3, 5, 7
    rank = lambda t, c, d, p: t + tp * (c + cp * (d + dp * p))
    groups = {
        name: {tuple(row) for row in layout.groups(name)} for name in ("tp", "cp", "dp", "pp")
    }
    for p in range(pp):
        for d in range(dp):
            for c in range(cp):
                assert tuple(rank(t, c, d, p) for t in range(tp)) in groups["tp"]
            for t in range(tp):
                assert tuple(rank(t, c, d, p) for c in range(cp)) in groups["cp"]
    assert tuple(rank(1, 2, d, 6) for d in range(dp)) in groups["dp"]
    assert tuple(rank(1, 2, 4, p) for p in range(pp)) in groups["pp"]
    both = layout.groups("cp", "dp")
    assert both.shape == (14, 15)
    assert sorted(both[0]) == [rank(0, c, d, 0) for d in range(dp) for c in range(cp)]


@pytest.mark.parametrize("name", ["tp", "cp", "dp", "pp"])
def test_groups_share_out_all_ranks(name):
    layout = Layout.parse("tp2 cp3 dp4 pp5 gbs4 seq64")
    assert np.sort(layout.groups(name).ravel()).tolist() == list(range(120))


def test_an_unknown_dimension_is_refused():
    with pytest.raises(
        ModelError, match=r"`groups\('dpp'\)`: Did you mean .*Known: 'tp', 'cp', 'dp' and 'pp'"
    ):
        Layout.parse("gbs8 seq8").groups("dpp")


def test_a_layout_that_suits_is_silent():
    Layout.parse("tp8 sp pp4 vpp5 dp31 cp2 mb1 gbs992 seq8192").check(LLAMA)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("tp3", r"(?s)`tp=3` does not divide the 64 query heads. Use 2 or 4.*28,672 rows of"),
        ("tp6", "neither divides the 8 key and value heads nor is a multiple"),
        ("pp3", "`pp=3` does not divide the 80 layers. Use 2 or 4"),
        ("pp4 vpp3", "pp x vpp = 12 does not divide the 80 layers. Use a product of 10 or 16"),
        ("tp8 sp seq8196", "not a multiple of tp = 8. Use `seq` 8,192 or 8,200"),
        ("cp3", "not a multiple of 2 cp = 6"),
        ("dp3 mb2", "`gbs=992` is not a multiple of mb x dp = 6. Use `gbs` 990 or 996"),
        ("pp4 vpp2 dp16", "needs a multiple of pp = 4 microbatches, but gbs / .* = 62"),
    ],
)  # fmt: skip
def test_what_does_not_divide_is_told_with_what_would(words, what):
    text = f"{words} gbs992" + ("" if "seq" in words else " seq8192")
    with pytest.raises(ModelError, match=what):
        Layout.parse(text).check(LLAMA)


def test_key_and_value_heads_are_repeated_beyond_their_number():
    Layout.parse("tp16 gbs1 seq8192").check(LLAMA)


def test_sequences_beyond_positions_or_window_are_refused():
    with pytest.raises(ModelError, match=r"2,048 rows of the learned position table. Use at most"):
        Layout.parse("gbs1 seq4096").check(Model.listed("gpt-3-175b"))
    windowed = replace(LLAMA, window=4096)
    with pytest.raises(ModelError, match="4,096 tokens of the sliding attention window"):
        Layout.parse("gbs1 seq8192").check(windowed)


def test_all_faults_of_a_layout_are_told_at_once():
    with pytest.raises(ModelError) as error:
        Layout.parse("tp3 sp pp7 dp5 gbs992 seq1000").check(LLAMA)
    assert "does not suit llama-3.1-70b" in str(error.value)
    assert len(str(error.value).splitlines()) == 7


def test_a_layout_beyond_the_allocation_is_infeasible_and_prints_the_identity():
    layout = Layout.parse("tp8 pp4 dp32 gbs992 seq8192")
    identity = "tp8 x cp1 x pp4 x dp32 = 1,024 GPUs, but the allocation has 992"
    with pytest.raises(InfeasibleError, match=f"{identity}. Use `dp31`") as error:
        layout.check_allocation(992)
    assert error.value.exit_code == 3
    assert layout.check_allocation(1024) == 0
    assert layout.check_allocation(1040) == 16
    with pytest.raises(InfeasibleError, match="smaller tp, cp or pp"):
        layout.check_allocation(16)
