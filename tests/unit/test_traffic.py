"""What patterns, demand matrices and flow tables promise, and how they refuse bad input."""

import bz2
import gzip
import lzma
import re
import time

import numpy as np
import pytest
from hypothesis import given, strategies as st

import fabric as fb
from fabric import traffic
from fabric.traffic import PATTERNS

HOSTS = np.array([10, 11, 12, 20, 21, 22, 30])


@pytest.fixture(scope="module")
def net():
    return fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=2)


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="flows.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


def pairs(flows):
    return list(zip(flows.src.tolist(), flows.dst.tolist(), strict=True))


def said(call, *args, **kwargs):
    with pytest.raises(fb.ModelError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# Patterns.


@given(n=st.integers(2, 40), seed=st.integers(0, 10_000))
def test_in_a_permutation_every_host_sends_once_receives_once_and_never_to_itself(n, seed):
    hosts = np.arange(100, 100 + n)
    flows = traffic.permutation(hosts, seed=seed)
    assert flows.src.tolist() == sorted(flows.dst.tolist()) == hosts.tolist()
    assert (flows.src != flows.dst).all()


def test_permutations_of_three_hosts_draw_both_derangements_alike():
    first = [int(traffic.permutation([0, 1, 2], seed=seed).dst[0]) for seed in range(600)]
    # 600 fair draws stay within 5 standard deviations (12.2) of 300.
    assert abs(first.count(1) - 300) < 61


def test_a_permutation_with_fixed_points_leaves_those_hosts_out():
    flows = [traffic.permutation(HOSTS, seed=seed, fixed_points=True) for seed in range(200)]
    sent = np.array([f.n_flows for f in flows])
    assert all((f.src != f.dst).all() for f in flows)
    # One fixed point is expected per draw; the mean of 200 draws has a deviation of 0.07.
    assert abs(len(HOSTS) - sent.mean() - 1) < 0.35


@pytest.mark.parametrize("name", ["permutation", "incast"])
def test_the_seed_decides(name):
    draw = lambda seed: pairs(PATTERNS[name](np.arange(50), "1MB", seed))
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


def test_all_to_all_has_every_ordered_pair_once_by_sender():
    want = [(int(a), int(b)) for a in HOSTS for b in HOSTS if a != b]
    assert pairs(traffic.all_to_all(HOSTS)) == want


def test_all_to_all_of_1024_hosts_is_fast():
    start = time.perf_counter()
    flows = traffic.all_to_all(np.arange(1024), size="1MB")
    assert flows.n_flows == 1_047_552
    # Some 30 ms here; a loop over pairs takes more than a second.
    assert time.perf_counter() - start < 1.0


def test_all_to_all_too_large_for_memory_is_refused_with_its_number():
    with pytest.raises(fb.ModelError, match=r"20,000 hosts has 399,980,000 flows, 16\.00 GB"):
        traffic.all_to_all(np.arange(20_000))


def test_a_ring_sends_to_the_next_and_closes():
    assert pairs(traffic.ring([4, 2, 9])) == [(4, 2), (2, 9), (9, 4)]
    assert pairs(traffic.ring([4, 2])) == [(4, 2), (2, 4)]


def test_incast_sends_from_all_others_or_from_those_asked_for():
    assert pairs(traffic.incast(HOSTS, to=20)) == [(int(h), 20) for h in HOSTS if h != 20]
    assert pairs(traffic.incast(HOSTS, to=20, senders=[30, 10])) == [(30, 20), (10, 20)]
    drawn = traffic.incast(HOSTS, senders=3, seed=5)
    assert len(set(drawn.src.tolist())) == 3
    assert len(set(drawn.dst.tolist())) == 1
    assert drawn.dst[0] not in drawn.src


@given(seed=st.integers(0, 1000))
def test_random_pairs_never_have_a_host_send_to_itself(seed):
    flows = traffic.uniform_random(HOSTS, 50, seed=seed)
    assert flows.n_flows == 50
    assert (flows.src != flows.dst).all()
    assert np.isin([flows.src, flows.dst], HOSTS).all()


def test_random_pairs_are_uniform_over_all_others():
    flows = traffic.uniform_random([0, 1, 2], 60_000, seed=1)
    counts = np.bincount(3 * flows.src + flows.dst, minlength=9).reshape(3, 3)
    # 10,000 expected per pair, standard deviation 91.
    assert np.abs(counts - 10_000 * (1 - np.eye(3))).max() < 460


@pytest.mark.parametrize("name", list(PATTERNS))
def test_every_named_pattern_takes_hosts_size_and_seed(name):
    flows = PATTERNS[name](HOSTS, size="1KiB", seed=1)
    assert (flows.size == 1024.0).all()
    assert np.isnan(PATTERNS[name](HOSTS, np.nan, 0).size).all()


@pytest.mark.parametrize("name", list(PATTERNS))
@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([], "needs at least 2 hosts, but got 0"),
        ([3], "needs at least 2 hosts, but got 1"),
        ([3, 4, 3], "names 1 nodes more than once: '3'"),
        ([3, -1], "needs node numbers of 0 or more, but got '-1'"),
        ([0.5, 1.5], r"needs a list of node numbers, .* Pass `net.hosts`"),
    ],
)
def test_bad_hosts_are_refused_by_every_pattern(name, hosts, message):
    with pytest.raises(fb.ModelError, match=message):
        PATTERNS[name](np.array(hosts), 1.0, 0)


def test_bad_receivers_and_senders_are_refused():
    assert "`incast(to=5)` is none of the 7 hosts" in said(traffic.incast, HOSTS, to=5)
    assert "(senders=7)` is more than the 6 other hosts" in said(traffic.incast, HOSTS, senders=7)
    refused = said(traffic.incast, HOSTS, to=10, senders=[10, 11, 99])
    assert "hosts other than the receiver 10, but 2 of 3 are not: '10' and '99'" in refused


# Demand matrices.


def test_every_entry_of_a_matrix_that_is_not_0_is_a_flow(net):
    flows = traffic.matrix(net, [[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 4.5, 0]], "kB")
    assert pairs(flows) == [(0, 1), (0, 3), (2, 0), (3, 2)]
    assert flows.size.tolist() == [1000, 2000, 3000, 4500]


def test_all_faults_of_a_matrix_are_said_at_once_by_name(net):
    array = np.zeros((4, 4))
    array[0, 1], array[1, 2], array[3, 3] = -1, np.nan, 2
    message = said(traffic.matrix, net, array)
    assert "2 of 16 entries are not: 'leaf0-host0->leaf0-host1' and" in message
    assert "1 hosts that send to themselves: 'leaf1-host1'. Set the diagonal to 0" in message


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3)), r"has shape \(2, 3\), but 4 hosts need \(4, 4\)"),
        (np.zeros((4, 4)), "is 0 everywhere, so there is no flow"),
        ([[1, 2], [3]], "needs a square array of numbers"),
    ],
)
def test_a_matrix_of_the_wrong_shape_is_refused(net, array, message):
    with pytest.raises(fb.ModelError, match=message):
        traffic.matrix(net, array)


DEMAND = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 0, 0], [0, 0, 4.5, 0]])


@pytest.mark.parametrize("first_row", [True, False])
@pytest.mark.parametrize("first_column", [True, False])
@pytest.mark.parametrize("corner", ["", "host", None])
def test_a_csv_matrix_is_read_with_names_in_any_order_or_without(
    net, write, first_row, first_column, corner
):
    order = [2, 0, 3, 1] if first_row or first_column else [0, 1, 2, 3]
    names = [net.labels.names[i] for i in order]
    rows = [[str(x) for x in row] for row in DEMAND[np.ix_(order, order)]]
    if first_column:
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    if first_row:
        rows.insert(0, [corner, *names] if first_column and corner is not None else names)
    flows = traffic.read_matrix(write("\n".join(map(",".join, rows)), "m.csv"), net)
    want = traffic.matrix(net, DEMAND)
    assert sorted(zip(pairs(flows), flows.size, strict=True)) == sorted(
        zip(pairs(want), want.size, strict=True)
    )


def test_an_npy_matrix_is_read_by_content(net, tmp_path):
    np.save(tmp_path / "demand.npy", DEMAND)
    (tmp_path / "demand.npy").rename(tmp_path / "demand.dat")
    flows = traffic.read_matrix(tmp_path / "demand.dat", net.hosts, unit="GB")
    assert pairs(flows) == pairs(traffic.matrix(net, DEMAND))
    assert flows.size.tolist() == [1e9, 2e9, 3e9, 4.5e9]


def test_a_matrix_may_name_only_some_hosts_in_different_orders(net, write):
    path = write(",leaf1-host0,leaf0-host1\nleaf0-host1,7,0\nleaf1-host0,0,0\n")
    assert pairs(traffic.read_matrix(path, net)) == [(1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,x\n1,0\n", "1 cells that are no number: 'x at line 1'"),
        ("0,\n1,0\n", "1 cells that are no number: 'nothing at line 1'"),
        ("0,1\n1,0,3\n", "1 rows that are not as long as the first .*: 'line 2'"),
        ("0,1\n1,0\n", r"has shape \(2, 2\), but 4 hosts need \(4, 4\)"),
        (",leaf0-host0\nleaf0-hots1,1\n", "1 of 1 names are not the name of one node"),
        (",leaf0-host0,a\nleaf0-host0,1,2\n", "1 have only one of them: 'a'"),
        (",leaf0,leaf1\nleaf0,0,1\nleaf1,0,0\n", r"do not send or receive \(leaf\): 'leaf0' and"),
        (",a,a\na,0,1\na,0,0\n", "names more than one row each 'a'"),
        ("leaf0-host0,leaf0-host1\n", "a first row of names and nothing below"),
        ("", "is empty"),
        pytest.param(b"\x93NUMPY junk", "is no NPY file of numbers", id="npy-junk"),
        pytest.param(b"\xff\xfe\x00", "is no UTF-8 text", id="matrix-no-utf8"),
    ],
)
def test_a_bad_matrix_file_is_refused_with_its_place(net, write, text, message):
    with pytest.raises(fb.ModelError, match=message):
        traffic.read_matrix(write(text, "m.csv"), net)


def test_a_pickle_in_an_npy_file_is_never_loaded(net, tmp_path):
    np.save(tmp_path / "m.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(fb.ModelError, match="is no NPY file of numbers"):
        traffic.read_matrix(tmp_path / "m.npy", net)


def test_names_in_a_matrix_need_the_network(net, write):
    path = write(",leaf0-host0\nleaf0-host0,0\n")
    with pytest.raises(fb.ModelError, match=r"has host names. Pass the network"):
        traffic.read_matrix(path, net.hosts)


# Flow tables.


def test_a_flow_table_fills_every_field(net, write):
    flows = traffic.read_flows(
        write(
            "src,dst,bytes,start,weight,cap\n"
            "leaf0-host0,leaf1-host1,1e6,0.5,2,1e9\n\n"
            "leaf1-host0,leaf0-host0,25MB,,,100Gb/s\n"
        ),
        net,
    )
    assert pairs(flows) == [(0, 3), (2, 0)]
    assert flows.size.tolist() == [1e6, 25e6]
    assert flows.start.tolist() == [0.5, 0.0]
    assert flows.weight.tolist() == [2.0, 1.0]
    assert flows.cap.tolist() == [1e9, 12.5e9]


def test_columns_left_out_have_their_defaults(net, write):
    flows = traffic.read_flows(write("src,dst,bytes\nleaf0-host0,leaf0-host1,5\n"), net)
    assert (flows.start[0], flows.weight[0], flows.cap[0]) == (0.0, 1.0, np.inf)


def test_a_flow_table_without_sizes_does_not_state_them(net, write):
    flows = traffic.read_flows(write("src,dst\nleaf0-host0,leaf0-host1\n"), net)
    assert pairs(flows) == [(0, 1)]
    assert np.isnan(flows.size).all()


def test_a_file_of_several_arrays_is_called_compressed(net, tmp_path):
    np.savez(tmp_path / "v.npz", a=np.ones((4, 4)))
    with pytest.raises(fb.ModelError, match=r"'v.npz' is compressed \(zip\). Unpack it"):
        traffic.read_matrix(tmp_path / "v.npz", net)


def test_a_matrix_of_the_wrong_shape_says_what_to_give(net, tmp_path):
    np.save(tmp_path / "small.npy", np.ones((2, 2)))
    with pytest.raises(fb.ModelError, match=r"4 hosts need \(4, 4\). Give a row and a column"):
        traffic.read_matrix(tmp_path / "small.npy", net)


@pytest.mark.parametrize(
    ("header", "cell", "size"),
    [
        ("size", "3", 3.0), ("Bytes", "3", 3.0), ("size_MB", "3", 3e6),
        ("size [GiB]", "1", 2.0**30),
        ("volume (Mb)", "8", 1e6), ("size_bytes", "3", 3.0), ("size_MB", "2kB", 2e3),
    ],
)  # fmt: skip
def test_a_size_column_may_have_a_unit_and_so_may_a_cell(net, write, header, cell, size):
    text = f"source;Destination;{header}\nleaf0-host0;leaf0-host1;{cell}\n"
    assert traffic.read_flows(write(text), net).size.tolist() == [size]


def test_columns_are_mapped_and_left_out_on_request(net, write):
    path = write("A,B,Load,note\nleaf0-host0,leaf0-host1,2,x\n")
    columns = {"A": "src", "B": "dst", "Load": "size_kB", "note": None}
    flows = traffic.read_flows(path, net, columns=columns)
    assert (pairs(flows), flows.size.tolist()) == ([(0, 1)], [2000.0])


def test_all_faults_of_a_flow_table_are_said_at_once_with_their_lines(net, write):
    message = said(
        traffic.read_flows,
        write(
            "src,dst,bytes,weight\n"
            "leaf0-hots0,leaf0-host1,1,1\n"
            "leaf0,leaf0-host1,-1,1\n"
            "leaf0-host1,leaf0-host1,many,0\n"
        ),
        net,
    )
    assert "'leaf0-hots0' (nearest: 'leaf0-host0')" in message
    assert "nodes that do not send or receive (leaf): 'leaf0'" in message
    assert "1 flows from a host to itself: 'leaf0-host1 at line 4'" in message
    assert "2 of 3 rows have something else: '-1 at line 3' and 'many at line 4'" in message
    assert "number of more than 0 in column 'weight', but 1 of 3 rows" in message


def test_of_many_unknown_hosts_five_are_named(net, write):
    rows = "".join(f"leaf0-host0,gpu{i},1\n" for i in range(5000))
    message = said(traffic.read_flows, write("src,dst,bytes\n" + rows), net)
    assert message.count("\n") == 0
    assert re.search(r"5,000 of 5,001 names .*'gpu0'.*'gpu4'.* and 4,995 more\. ", message)
    assert message.endswith("Use names such as 'leaf0-host0' and 'leaf0-host1'.")


def test_a_name_of_3000_characters_is_cut_and_its_control_characters_are_escaped(net, write):
    message = said(traffic.read_flows, write(f"src,dst\nleaf0-host0,x\x1b{'y' * 3000}z\n"), net)
    assert re.search(r"'x\\x1by+\.\.\.y+z'", message)
    assert len(message) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'flows.csv' is empty"),
        (" \n\n", "'flows.csv' is empty"),
        ("src,dst,bytes\n", "has a first line and no flow below it"),
        ("src,size\na,1\n", "has no column 'dst': its first line has 'src' and 'size'"),
        ("leaf0-host0,leaf0-host1,5\n", "has no column 'src' and 'dst'.*It needs `src` and `dst`,"),
        ("src,dst,bytes,wieght\na,b,1,1\n", r"unknown column 'wieght'. Did you mean 'weight'\?"),
        ("src,dst,bytes,size\na,b,1,1\n", r"`size` twice: 'bytes' and 'size'. Map one .*`columns="),
        ("src,src,dst\na,b,c\n", "gives `src` twice: 'src' and 'src'. Delete or rename one"),
        ("src,dst,size_mb\na,b,1\n", "unknown unit 'mb'"),
        ("src,dst,size_us\na,b,1\n", "is a time, not a size"),
        ("src,dst,bytes,weight_kg\na,b,1,1\n", "has the unit 'kg', but `weight` has none"),
        ("src,dst,bytes\na,b,1\na,b\n\na,b,1,2\n",
         "2 rows without one cell .*'line 3' and 'line 5'"),
        ("src,dst,bytes\nleaf0-host0,leaf0-host1,\n", "1 of 1 rows .*'nothing at line 2'"),
        ("src,dst,bytes\nleaf0-host0,leaf0-host1,nan\n", "1 of 1 rows .*'nan at line 2'"),
        ("src,dst,bytes\nleaf0-host0,leaf0-host1,inf\n", "1 of 1 rows .*'inf at line 2'"),
        ("src,dst,bytes\nleaf0-host0,leaf0-host1,1Gb/s\n", "1 of 1 rows .*'1Gb/s at line 2'"),
        pytest.param(b"\x01\x02\x00\x00", "holds binary data", id="binary"),
        pytest.param(b"a,\xff\xfe", "is no UTF-8 text", id="no-utf8"),
        pytest.param(b"PK\x03\x04\x00\x00", r"is compressed \(zip\). Unpack it", id="zip"),
        # A gzip header holds the time of day, so its bytes are no name for a test.
        pytest.param(
            gzip.compress(b"src,dst\n"), r"is compressed \(gzip\). Unpack it", id="gzip"
        ),
        pytest.param(
            bz2.compress(b"src,dst\n"), r"is compressed \(bzip2\). Unpack it", id="bzip2"
        ),
        pytest.param(lzma.compress(b"src,dst\n"), r"is compressed \(xz\). Unpack it", id="xz"),
        ('src,dst,bytes\n"a,b,1\n', "is no CSV file: unexpected end of data"),
    ],
)  # fmt: skip
def test_a_bad_flow_table_is_refused_with_its_place(net, write, text, message):
    with pytest.raises(fb.ModelError, match=message):
        traffic.read_flows(write(text), net)


def test_a_file_that_is_not_there_is_refused(net, tmp_path):
    with pytest.raises(fb.ModelError, match=r"nowhere.csv' cannot be read: No such file"):
        traffic.read_flows(tmp_path / "nowhere.csv", net)
    with pytest.raises(fb.ModelError, match=r"cannot be read: Is a directory"):
        traffic.read_flows(tmp_path, net)


def test_a_mapping_of_a_column_that_is_not_there_is_refused(net, write):
    path = write("src,dst,bytes\nleaf0-host0,leaf0-host1,1\n")
    with pytest.raises(fb.ModelError, match=r"no column 'byte'. Did you mean 'bytes'\?"):
        traffic.read_flows(path, net, columns={"byte": "size"})


def test_quotes_commas_and_line_ends_of_windows_are_read(net, write):
    plain = "src,dst,bytes\r\nleaf0-host0 , leaf0-host1,5\r\n,,\r\n"
    quoted = '"src","dst","bytes"\n"leaf0-host0",leaf0-host1,"5"\n'
    for text in (plain, quoted, "\ufeff" + plain):
        flows = traffic.read_flows(write(text), net)
        assert (pairs(flows), flows.size.tolist()) == ([(0, 1)], [5.0])


def test_a_table_of_200000_flows_is_read_in_about_a_second(write):
    big = fb.topologies.fat_tree(16)
    names = list(big.labels.names[:1024])
    ends = [(i % 1024, (i * 9 + 1) % 1024) for i in range(200_000)]
    rows = "".join(f"{names[a]},{names[b]},{a}\n" for a, b in ends)
    path = write("src,dst,bytes\n" + rows)
    start = time.perf_counter()
    flows = traffic.read_flows(path, big)
    # Some 0.5 s here; a dictionary per row takes several times that.
    assert time.perf_counter() - start < 3.0
    assert pairs(flows) == ends
