"""What `readers.lfts` reads out of dumps of forwarding tables, and what it says of the rest."""

import gzip

import numpy as np
import pytest

import fabric as fb
from fabric import readers, routing
from fabric._errors import ModelError

FABRIC = """#
switchguid=0xa0(a0)
Switch\t8 "S-00000000000000a0"\t\t# "leaf" base port 0 lid 1 lmc 0
[1]\t"H-00000000000000b0"[1](b1) \t\t# "node1" lid 2 4xNDR
[2]\t"H-00000000000000c0"[1](c1) \t\t# "node2" lid 3 4xNDR

caguid=0xb0
Ca\t1 "H-00000000000000b0"\t\t# "node1"
[1](b1) \t"S-00000000000000a0"[1]\t\t# lid 2 lmc 0 "leaf" lid 1 4xNDR

caguid=0xc0
Ca\t1 "H-00000000000000c0"\t\t# "node2"
[1](c1) \t"S-00000000000000a0"[2]\t\t# lid 3 lmc 0 "leaf" lid 1 4xNDR
"""
HEAD = "Unicast lids [0-3] of switch Lid 1 guid 0x00000000000000a0 ('leaf'):\n"
DUMPS = {
    "opensm-lfts.dump": HEAD
    + """0x0001 000 # Switch portguid 0x00000000000000a0: 'leaf'
0x0002 001 # Channel Adapter portguid 0x00000000000000b1: 'node1'
0x0003 002 # Channel Adapter portguid 0x00000000000000c1: 'node2'
3 lids dumped
""",
    "ibroute": """Unicast lids [0x0-0x3] of switch Lid 1 guid 0x00000000000000a0 (leaf):
  Lid  Out   Destination
       Port     Info
0x0001 000 : (Switch portguid 0x00000000000000a0: 'leaf')
0x0002 001 : (Channel Adapter portguid 0x00000000000000b1: 'node1')
0x0003 002 : (Channel Adapter portguid 0x00000000000000c1: 'node2')
3 valid lids dumped
""",
    "ibroute -n": """Unicast lids [0x0-0x3] of switch Lid 1 guid 0x00000000000000a0 (leaf):
  Lid  Out   Destination
       Port     Info
0x0001 000
0x0002 001
0x0003 002
3 valid lids dumped
""",
    "dump_fts": """Unicast lids [0x0-0x3] of switch DR path slid 0; dlid 0; 0,1 guid 0xa0 (a guid):
  Lid  Out   Destination
       Port     Info
0x0001 000 : (Switch portguid 0xa0: 'leaf')
0x0002 001 : (Channel Adapter portguid 0xb1: 'node1')
0x0003 002 : (Channel Adapter portguid 0xc1: 'node2')
""",
    "opensm.fdbs": """dump_ucast_routes: Switch 0x00000000000000a0
LID    : Port : Hops : Optimal
0x0001 : 000  : 00   : yes
0x0002 : 001  : 01   : yes
0x0003 : 002  : 01   : yes
""",
}


def sample(shared, name):
    return shared / "samples" / "topology" / "ib" / f"small_2x2.{name}"


@pytest.mark.parametrize("name", DUMPS)
def test_every_tool_prints_the_same_tables_in_its_own_way(name):
    reading = readers.lfts(DUMPS[name], FABRIC)
    assert reading.tables.switches == ("S-00000000000000a0",)
    assert reading.tables.out_port.tolist() == [[255, 0, 1, 2]]
    assert reading.tables.lids == {"H-00000000000000b0": (2,), "H-00000000000000c0": (3,)}
    assert (reading.entries, reading.ignored, reading.contradicted) == (3, [], [])
    assert reading.warnings == []


def test_gzip_and_windows_line_ends_are_read_too(tmp_path):
    path = tmp_path / "dump.gz"
    path.write_bytes(gzip.compress(DUMPS["ibroute"].replace("\n", "\r\n").encode()))
    (tmp_path / "fabric").write_bytes(b"\xef\xbb\xbf" + FABRIC.rstrip().encode())
    reading = readers.lfts(path, tmp_path / "fabric")
    assert reading.source == "dump.gz"
    assert reading.tables.out_port.tolist() == [[255, 0, 1, 2]]
    assert reading.fingerprint.startswith("sha256:")


@pytest.mark.parametrize("lids", ["ibnetdiscover", "lst"])
@pytest.mark.parametrize("dump", ["lfts", "fdbs"])
def test_the_tables_of_a_real_opensm_lead_as_read_off_by_eye(shared, dump, lids):
    net = readers.read(sample(shared, "ibnetdiscover")).network
    reading = readers.lfts(sample(shared, dump), sample(shared, lids))
    # Four switches and eight LIDs, but no spine knows the LID of the other.
    assert (len(reading.tables.switches), reading.entries) == (4, 4 * 8 - 2)
    unreachable = [{"what": "LIDs that a switch cannot reach", "count": 2}]
    assert reading.ignored == (unreachable if dump == "fdbs" else [])
    name = lambda text: net.labels.node(text)
    flows = fb.Flows([name("node1"), name("node4")], [name("node3"), name("node1")])
    routes = routing.forwarding_tables(net, flows, reading.tables)
    links = [net.link_name(link) for link in routes.hop_bundle.tolist()]
    assert links == [
        "node1[1]->leaf1[1]", "leaf1[5]->spine1[1]", "spine1[2]->leaf2[5]", "leaf2[1]->node3[1]",
        "node4[1]->leaf2[2]", "leaf2[5]->spine1[2]", "spine1[1]->leaf1[5]", "leaf1[1]->node1[1]",
    ]  # fmt: skip


def test_ports_are_decimal_and_lids_hexadecimal():
    dump = HEAD + "0x000a 010\n"
    lids = FABRIC.replace("lid 3 lmc", "lid 10 lmc")
    assert int(readers.lfts(dump, lids).tables.out_port[0, 10]) == 10
    end = "NodeGUID:00000000000000{} PortGUID:00000000000000{} VenID:0 DevID:0 Rev:0 {{{}}} "
    ca, sw = end.format("c0", "c1", "a; b: c/d } { e"), end.format("a0", "a0", "leaf")
    line = (
        f"{{ CA Ports:01 SystemGUID:0 {ca}LID:001A PN:01 }} "
        f"{{ SW Ports:41 SystemGUID:0 {sw}LID:0001 PN:1F }} PHY=4x LOG=ACT SPD=25\n"
    )
    assert readers.lfts(DUMPS["opensm.fdbs"], line).tables.lids == {"H-00000000000000c0": (26,)}


def test_several_lids_per_port_come_from_the_dump_or_from_the_lmc():
    lids = FABRIC.replace("lid 2 lmc 0", "lid 4 lmc 1")
    named = HEAD + (
        "0x0004 001 : (Channel Adapter portguid 0xb1: 'node1')\n"
        "0x0005 001 : (path #2 out of 2: portguid 0xb1)\n"
    )
    for dump in (named, HEAD + "0x0004 001\n0x0005 001\n"):
        assert readers.lfts(dump, lids).tables.lids["H-00000000000000b0"] == (4, 5)


def test_dropped_entries_are_counted_by_kind():
    dump = DUMPS["opensm.fdbs"] + "0x0004 : UNREACHABLE\n0x0005 : UNREACHABLE\n0x0006 : 255\n"
    reading = readers.lfts(dump, FABRIC)
    assert reading.ignored == [
        {"what": "LIDs that a switch cannot reach", "count": 2},
        {"what": "entries that drop what is sent there (port 255)", "count": 1},
    ]
    shown = readers.lfts(HEAD + "0x0000 255 : (path #0 - illegal port)\n0x0002 001\n", FABRIC)
    assert shown.entries == 1


def test_what_is_said_twice_or_not_understood_is_told():
    dump = DUMPS["ibroute"] + DUMPS["ibroute"].replace("0x0003 002", "0x0003 001") + "oops\n"
    reading = readers.lfts(dump, FABRIC)
    assert int(reading.tables.out_port[0, 3]) == 2
    assert reading.ignored == [{"what": "tables of a switch that has one already", "count": 1}]
    twice, odd = reading.contradicted
    assert twice["item"] == "LID 3 of S-00000000000000a0: ports 2 and 1; kept 2"
    assert (odd["what"], odd["count"]) == ("lines not understood", 1)


def test_the_dump_knows_its_own_lids_better_than_an_older_file():
    older = FABRIC.replace("lid 3 ", "lid 7 ").replace("lid 1 ", "lid 9 ")
    reading = readers.lfts(DUMPS["ibroute"], older)
    assert reading.tables.lids["H-00000000000000c0"] == (3,)
    assert [row["what"] for row in reading.contradicted] == [
        "end node with another LID",
        "switch with another LID",
    ]
    for dump in ("opensm.fdbs", "ibroute -n"):
        with pytest.raises(ModelError, match=r"1 of 1 switches have another LID .*9 there, 1 here"):
            readers.lfts(DUMPS[dump], older)


def test_a_lid_that_the_dump_gives_to_another_port_is_not_taken():
    swapped = FABRIC.replace('(b1) \t"S', '(f1) \t"S').replace("lid 2 lmc", "lid 3 lmc")
    reading = readers.lfts(DUMPS["ibroute"], swapped)
    assert reading.tables.lids == {"H-00000000000000c0": (3,)}
    assert "LID 3 in text, which is another port's here" in reading.contradicted[0]["item"]
    assert reading.warnings == ["1 of 2 end nodes have no LID: 'H-00000000000000b0'."]


def test_a_fabric_without_lids_still_gets_them_from_the_port_guids():
    unset = FABRIC.replace("lid 2 ", "lid 0 ").replace("lid 3 ", "lid 65535 ")
    assert readers.lfts(DUMPS["opensm-lfts.dump"], unset).tables.lids == {
        "H-00000000000000b0": (2,), "H-00000000000000c0": (3,)
    }  # fmt: skip


def test_a_switch_without_a_table_is_told():
    more = FABRIC + 'switchguid=0xa9(a9)\nSwitch 8 "S-00000000000000a9" # "x" port 0 lid 9 lmc 0\n'
    assert readers.lfts(DUMPS["ibroute"], more).warnings == [
        "1 of 2 switches have no table: 'S-00000000000000a9'."
    ]


@pytest.mark.parametrize(
    ("dump", "lids", "said"),
    [
        pytest.param(FABRIC, FABRIC, "holds no forwarding table", id="no-tables"),
        pytest.param(DUMPS["ibroute"], "a table\nof mine\n", "neither the output", id="no-lids"),
        pytest.param(
            HEAD + "0x0002 300\n0xFFFF 001\n", FABRIC,
            r"2 entries have a LID .*'line 2: 0x0002 300' and 'line 3: 0xFFFF 001'", id="outside",
        ),
    ],
)  # fmt: skip
def test_what_is_no_dump_or_out_of_range_is_refused(dump, lids, said):
    with pytest.raises(ModelError, match=said):
        readers.lfts(dump, lids)


def test_the_tables_of_the_written_dump_join_with_the_network_it_came_from(tmp_path):
    net = fb.topologies.leaf_spine(leaves=2, spines=1, hosts_per_leaf=1)
    back = readers.read(readers.write_ibnetdiscover(net, tmp_path / "dump")).network
    guids = [int(ident[2:], 16) for ident in back.labels.ids]
    # The simulator numbers ports up from the GUID of their node, and OpenSM finds ports by GUID.
    assert len({guid + port for guid in guids for port in range(256)}) == 256 * len(guids)
    assert np.all(np.diff(sorted(guids)) == 256)
