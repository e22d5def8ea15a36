"""What `step` promises: times that add up, shared links that count, and one clear error each."""

import json

import numpy as np
import pytest

import fabric as fb
from fabric import hardware
from fabric.topologies import attach_servers, cluster, rail_optimized

MODEL = fb.Model.listed("llama-3.1-70b")
LAYOUT = fb.Layout.parse("tp8 sp pp4 dp31 zero1 mb1 gbs992 seq8192 bf16 recompute=selective")
SMALL = fb.Model.listed("llama-3.1-8b")


@pytest.fixture(scope="module")
def superpod():
    return cluster("dgx-h100", nodes=127)


@pytest.fixture(scope="module")
def four():
    return cluster("dgx-h100", nodes=4)


def words(text, **changes):
    return fb.Layout.parse(text.format(**changes))


def tiny(net, text, model=SMALL, **options):
    return fb.step(net, model, fb.Layout.parse(text), by=None, **options)


@pytest.mark.parametrize(
    ("placement", "least", "most"),
    [
        pytest.param("first", 0.0, 0.005, id="first"),
        pytest.param("spread", 0.03, 0.04, id="spread"),
    ],
)
def test_a_lost_spine_costs_data_parallelism_that_is_spread_over_units(
    superpod, placement, least, most
):
    whole, without = (
        fb.step(net, MODEL, LAYOUT, placement, by=None)
        for net in (superpod, superpod.without(nodes=["spine7"]))
    )
    seconds = [phase.seconds for r in (whole, without) for phase in r.phases
               if phase.traffic.name == "dp"]  # fmt: skip
    assert least <= seconds[1] / seconds[0] - 1 <= most
    if placement == "spread":
        # 31 servers of a unit send through a leaf that has 30 of 32 uplinks left.
        transfers = [p.transfer for r in (whole, without) for p in r.phases
                     if p.traffic.name == "dp"]  # fmt: skip
        assert transfers[1] / transfers[0] == pytest.approx(31 / 30, rel=1e-9)
    assert without.step_time >= whole.step_time


def test_parts_add_up_and_hidden_time_is_never_negative(superpod):
    report = fb.step(superpod, MODEL, LAYOUT, by=None)
    assert sum(exposed for exposed, _ in report.breakdown.values()) == pytest.approx(
        report.step_time, rel=1e-12
    )
    assert min(min(pair) for pair in report.breakdown.values()) >= 0
    assert report.tokens_per_s == pytest.approx(992 * 8192 / report.step_time)
    assert report.gpus_used == 992
    assert report.gpus_idle == 24
    assert report.certificate < 1e-12
    # Model FLOPs by hand: 6 per parameter of a matrix and token, 12 s h per layer and token.
    matrices = MODEL.parameters - MODEL.embedding_parameters - 161 * 8192
    flops = 992 * 8192 * (6 * matrices + 12 * 80 * 8192 * 8192)
    assert report.mfu == pytest.approx(flops / report.step_time / 992 / 989e12, rel=1e-9)
    assert report.days(15e12) == pytest.approx(15e12 / report.tokens_per_s / 86400)
    assert report.gpu_hours(15e12) == pytest.approx(report.days(15e12) * 24 * 992)


@pytest.mark.parametrize("vpp", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_bubble_is_p_minus_1_over_v_m_of_the_ideal_time(four, vpp, schedule):
    if vpp > 1 and schedule == "gpipe":
        return
    profile = hardware.profile("megatron-core-h100").with_values({"jitter_per_doubling": 0.0})
    report = tiny(
        four, f"tp8 sp pp4 vpp{vpp} mb1 gbs16 seq8192 schedule={schedule}", profile=profile
    )
    parts = report.parts
    # The last stage has the head besides; what is left of a microbatch is a stage of the pipeline.
    work = report.breakdown
    total = sum(work[name][0] for name in ("compute", "host", "tp", "pp"))
    no_head = tiny(
        four, f"tp8 sp pp4 vpp{vpp} mb1 gbs32 seq8192 schedule={schedule}", profile=profile
    )
    # Twice the microbatches, the same bubble.
    assert float(no_head.parts.bubble) == pytest.approx(float(parts.bubble), rel=1e-12)
    assert 0.8 < float(parts.bubble) / total / (3 / (vpp * 16)) <= 1.0


def test_zero_3_moves_half_as_much_again_as_plain_data_parallelism(four):
    exposed = {}
    profile = hardware.profile("megatron-core-h100").with_values(
        {"stack.grad_dtype": "bf16", "latency.collective": 0.0, "latency.nic_step": 0.0}
    )
    for zero in (0, 3):
        report = tiny(four, f"tp8 sp dp4 zero{zero} mb1 gbs4 seq8192", profile=profile)
        exposed[zero] = sum(report.breakdown["dp"])
    assert exposed[3] / exposed[0] == pytest.approx(1.5, rel=1e-9)


def test_groups_that_meet_on_a_link_share_it():
    """Tensor parallel groups over two servers meet at their adapters and on thin uplinks."""
    thin = rail_optimized(servers=4, rails=8, radix=64, servers_per_unit=2, leaf_down=2, leaf_up=1)
    nics = np.flatnonzero(thin.labels.is_kind("nic")).reshape(4, 8)
    net = attach_servers(thin, hardware.server("dgx-h100"), nics)
    # Consecutive servers are on one leaf; every second one is behind the same thin uplink.
    near = fb.Placement(net.hosts)
    order = np.concatenate([net.hosts.reshape(4, 8)[i] for i in (0, 2, 1, 3)])
    text = "tp8 dp4 zero1 mb1 gbs4 seq8192"
    times = {}
    for name, placement in (("near", near), ("far", fb.Placement(order))):
        report = tiny(net, text, placement=placement, routing="spray")
        (phase,) = (p for p in report.phases if p.traffic.name == "dp")
        times[name] = phase
    # A ring 0-1-2-3 sends one flow per leaf and rail up, a ring 0-2-1-3 two through one uplink.
    assert times["far"].transfer / times["near"].transfer == pytest.approx(2.0, rel=1e-9)
    assert times["far"].routes.n_flows == times["near"].routes.n_flows == 32


def test_sensitivities_equal_steps_with_one_part_in_a_million_more_and_less(superpod):
    for net in (superpod, superpod.without(nodes=["spine7"])):
        report = fb.step(net, MODEL, LAYOUT, "spread")
        assert report.sensitivities[0].key == "nvlink"
        for row in report.sensitivities:
            moved = []
            for sign in (1, -1):
                share = 1 + sign * 1e-6 * net.labels.is_tier(row.key)
                changed = net.with_capacity(np.asarray(net.capacity) * share)
                moved.append(fb.step(changed, MODEL, LAYOUT, "spread", by=None).step_time)
            gain = (moved[0] / report.step_time - 1) / 1e-6
            loss = (1 - moved[1] / report.step_time) / 1e-6
            # The quotient of two steps of 10 s is good to about 1e-9.
            assert row.gain_per_plus_1pct == pytest.approx(gain, abs=2e-6)
            assert row.loss_per_minus_1pct == pytest.approx(loss, abs=2e-6)


def test_at_a_tie_more_buys_nothing_and_less_costs():
    """Full units: a leaf has as many uplinks as servers, so both tiers hold a spread ring."""
    net = cluster("dgx-h100", nodes=128)
    full = fb.Layout.parse("tp8 sp pp4 dp32 zero1 mb1 gbs1024 seq8192 recompute=selective")
    rows = fb.step(net, MODEL, full, "spread").sensitivities
    host, uplinks = rows.row("host"), rows.row("leaf-spine")
    # One percent more of one tier alone moves no data-parallel ring, one percent less both do.
    assert uplinks.gain_per_plus_1pct == pytest.approx(0.0, abs=1e-12)
    assert uplinks.loss_per_minus_1pct < -0.01
    assert host.kink
    assert abs(host.gain_per_plus_1pct) < abs(host.loss_per_minus_1pct)


def test_a_bottleneck_costs_what_the_step_saves_without_its_transfer(four):
    report = fb.step(
        four, SMALL, fb.Layout.parse("tp8 sp pp2 dp2 zero1 mb1 gbs16 seq8192"), by=None
    )
    costs = {b.exchange: b.cost for b in report.bottlenecks}
    endless = four.with_capacity(np.asarray(four.capacity) * 1e12)
    free = fb.step(
        endless, SMALL, fb.Layout.parse("tp8 sp pp2 dp2 zero1 mb1 gbs16 seq8192"), by=None
    )
    # Exchanges hide each other's cost at most: one at a time saves no more than all together.
    assert 0 < sum(costs.values()) <= (report.step_time - free.step_time) * (1 + 1e-6)
    assert {b.group for b in report.bottlenecks} == {"tp", "pp", "dp"}
    assert all(b.tier in four.labels.tiers for b in report.bottlenecks)


def test_hashed_paths_collide_and_a_seed_repeats_them(superpod):
    route = lambda seed: fb.step(superpod, MODEL, LAYOUT, "spread", "ecmp", seed=seed, by=None)
    first, again, other = route(1), route(1), route(2)
    sprayed = fb.step(superpod, MODEL, LAYOUT, "spread", "spray", by=None)
    assert first.step_time == again.step_time != other.step_time
    assert first.step_time > sprayed.step_time
    assert first.routing["name"] == "ecmp"
    assert first.routing["seed"] == 1


def test_the_default_routing_is_that_of_the_cluster_and_is_told(superpod):
    report = fb.step(superpod, MODEL, LAYOUT, by=None)
    assert report.routing["name"] == "spray"
    assert report.routing["kind"] == "preset"
    assert report.assumptions[0].name == "routing"


def test_the_answer_for_programs_is_json_with_every_field(four):
    report = fb.step(four, SMALL, fb.Layout.parse("tp8 sp dp4 zero1 mb1 gbs16 seq8192"))
    answer = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert answer["schema"] == "fabric.run/1"
    assert answer["gpus"] == {"type": "h100-sxm", "used": 32, "idle": 0}
    assert answer["memory"]["verdict"] == "fits"
    assert {"name", "value", "kind", "source"} <= set(answer["assumptions"][0])
    assert sum(row["exposed_s"] for row in answer["breakdown"]) == pytest.approx(
        answer["step_time_s"]
    )
    row = answer["bottlenecks"][0]
    assert {"link", "tier", "group", "utilisation", "cost_s"} <= set(row)
    assert all(e["links_used"] <= answer["links_present"] for e in answer["exchanges"])


def test_every_number_behind_an_answer_has_evidence(four):
    report = tiny(four, "tp8 sp dp4 zero1 mb1 gbs16 seq8192")
    kinds = {"preset", "measured", "fitted", "assumed", "user"}
    assert {a.kind for a in report.assumptions} <= kinds
    assert all(a.source for a in report.assumptions)
    named = {a.name for a in report.assumptions}
    assert {"profile.efficiency.gemm", "gpu.hbm", "profile.stack.attention", "layout.vpp1"} <= named


def test_a_layout_without_any_group_needs_no_network(four):
    report = fb.step(four, fb.Model.listed("gpt2-xl"), fb.Layout.parse("gbs4 seq1024"))
    assert report.phases == ()
    assert report.sensitivities.rows == ()
    assert report.breakdown["tp"] == (0.0, 0.0)
    assert report.step_time > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp8 pp4 dp2 gbs8 seq8192", r"tp8 x cp1 x pp4 x dp2 = 64 GPUs, .* 32"),
        (
            "tp8 dp4 mb1 gbs8 seq131072",
            r"(?s)does not fit.*activations .*smallest change that fits: sp recompute=full",
        ),
    ],
)
def test_what_cannot_be_served_says_why_and_what_would(four, text, message):
    with pytest.raises(fb.InfeasibleError, match=message):
        fb.step(four, SMALL, fb.Layout.parse(text))


def test_a_model_that_does_not_fit_is_answered_when_asked_for(four):
    report = tiny(four, "tp8 dp4 mb1 gbs8 seq131072", allow_infeasible=True)
    assert report.memory.verdict == "does not fit"
    assert report.step_time > 0


def test_wrong_input_is_named(four):
    bare = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=8)
    text = "tp8 dp2 zero1 gbs4 seq2048"
    with pytest.raises(fb.ModelError, match=r"needs the type of GPU.*`gpu=`"):
        tiny(bare, text)
    with pytest.raises(fb.ModelError, match=r"'sprad' is no placement. Did you mean 'spread'"):
        tiny(four, text, placement="sprad")
    with pytest.raises(fb.ModelError, match=r"`routing='spry'` is not known. Did you mean 'spray'"):
        tiny(four, text, routing="spry")
    with pytest.raises(fb.ModelError, match="Did you mean 'h100-sxm'"):
        tiny(four, text, gpu="h100-sxmm")
    with pytest.raises(fb.ModelError, match="has 3 ranks, but the layout needs 16"):
        tiny(four, text, placement=fb.Placement(four.hosts[:3]))
    with pytest.raises(fb.ModelError, match="no peak of 'a100-sxm' for fp8"):
        tiny(four, "tp8 dp2 zero1 gbs4 seq2048 fp8", gpu="a100")


def test_a_bare_network_serves_with_the_type_of_gpu_given():
    net = fb.topologies.leaf_spine(leaves=2, spines=2, hosts_per_leaf=8, capacity="400Gb/s")
    report = tiny(net, "tp2 dp8 zero1 gbs8 seq2048", gpu="h100", placement="spread")
    assert report.routing["name"] == "ecmp"
    assert report.routing["kind"] == "assumed"
    assert {p.traffic.name for p in report.phases} == {"tp", "dp"}


def test_a_link_of_capacity_0_on_the_way_is_named(four):
    host = four.labels.is_tier("host")
    dead = np.where(host & (np.cumsum(host) == 1), 0.0, np.asarray(four.capacity))
    with pytest.raises(fb.InfeasibleError, match=r"get no rate.*capacity 0.*server0-gpu0"):
        tiny(four.with_capacity(dead), "tp8 dp4 zero1 gbs4 seq2048")


def test_a_ring_inside_a_mesh_uses_all_of_its_links():
    bare = rail_optimized(servers=2, rails=8, radix=64)
    nics = np.flatnonzero(bare.labels.is_kind("nic")).reshape(2, 8)
    mesh = attach_servers(bare, hardware.server("mi300x-8"), nics)
    report = tiny(mesh, "tp8 sp dp2 zero1 mb1 gbs4 seq8192")
    (tp,) = (p for p in report.phases if p.traffic.name == "tp")
    # Seven links of 64 GB/s each, and what the software reaches of them.
    bytes_sent = 2 * 7 / 8 * 2 * 8192 * SMALL.hidden
    reached = 7 * 64e9 * report.profile.efficiency.nvlink.value
    assert tp.transfer == pytest.approx(bytes_sent / reached, rel=1e-9)


def test_fp8_speeds_up_products_and_leaves_attention_in_bf16(four):
    wide, narrow = (
        tiny(four, f"tp8 sp dp4 zero1 mb1 gbs16 seq32768 {dtype}", allow_infeasible=True)
        for dtype in ("bf16", "fp8")
    )
    ratio = float(wide.parts.compute) / float(narrow.parts.compute)
    assert 1.1 < ratio < 1.6
    assert [p.transfer for p in wide.phases] == [p.transfer for p in narrow.phases]


def test_a_gpu_or_a_profile_of_another_type_is_told(four):
    report = tiny(four, "tp8 sp dp4 zero1 gbs16 seq2048", gpu="h200", profile="megatron-core-h100")
    told = {a.name: a for a in report.assumptions if a.kind == "user"}
    assert told["gpu"].value == "h200-sxm"
    assert "h100-sxm" in told["gpu"].source
    assert "h100-sxm" in told["profile"].source


def test_a_network_without_servers_says_what_an_endpoint_is():
    net = rail_optimized(servers=4, rails=8, radix=64)
    report = tiny(net, "tp2 dp16 zero1 gbs32 seq2048", gpu="h100")
    assert {a.name: a.value for a in report.assumptions}["servers"] == "none"
    assert all(p.traffic.exchange.crossings.min() >= 1 for p in report.phases)


def test_what_nothing_exposes_is_exactly_0(four):
    report = tiny(four, "tp8 cp2 dp2 zero1 mb1 gbs16 seq65536")
    exposed, hidden = report.breakdown["cp"]
    assert exposed == 0.0
    assert hidden > 0


def test_no_overlap_turns_within_the_reach_of_a_sensitivity(four):
    """Up to the reach a tier's seconds move as 1 / capacity, and the step as the parts say."""
    model, layout = (
        fb.Model.listed("llama-3.1-70b"),
        fb.Layout.parse("tp8 sp dp4 zero1 gbs4 seq8192"),
    )
    report = fb.step(four, model, layout, allow_infeasible=True)
    row = report.sensitivities.row("host")
    host = four.labels.is_tier("host")

    def stepped(share):
        net = four.with_capacity(np.asarray(four.capacity) * (1 + share * host))
        return fb.step(net, model, layout, by=None, allow_infeasible=True).step_time

    for sign, reach in ((1, row.exact_within_plus_pct), (-1, row.exact_within_minus_pct)):
        share = sign * min(reach / 100, 0.5)
        # A function a + b / c that has the slope of the row at c = 1.
        slope = row.gain_per_plus_1pct if sign > 0 else row.loss_per_minus_1pct
        law = lambda x, slope=slope: report.step_time * (1 - slope * (1 / (1 + x) - 1))
        assert stepped(0.9 * share) == pytest.approx(law(0.9 * share), rel=2e-4)
    assert row.exact_within_plus_pct < 50
