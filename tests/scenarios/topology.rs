//! Tables of `nvidia-smi topo -m`: with tabs, with blanks, glued, with NICs old and new, and everything that is wrong with them.

use proptest::prelude::*;
use ranklab::scenario::Scenario;
use ranklab::scenario::topology::{Connection, Topology};

/// Four GPUs and two NICs as the tool prints them.
const TABS: &str = "\t\u{1b}[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m
GPU0\t X \tNV12\tNV12\tNV4\tPIX\tSYS\t0-47\t0\t\tN/A
GPU1\tNV12\t X \tNV12\tNV12\tPXB\tSYS\t0-47\t0\t\tN/A
GPU2\tNV12\tNV12\t X \tNV12\tSYS\tPHB\t48-95\t1\t\tN/A
GPU3\tNV4\tNV12\tNV12\t X \tSYS\tNODE\t48-95\t1\t\tN/A
NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tSYS\tPHB\tNODE\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_bond_1
";

/// Without tabs, columns glued, old names of NICs, and the affinity glued to the last number of links.
const GLUED: &str = "$ nvidia-smi topo -m
GPU0GPU1GPU2CPU AffinityNUMA Affinity
GPU0XNV12NV180-23,48-710
GPU1NV12XNV40-23,48-710
GPU2NV18NV4X24-47,72-951
Legend:
";

fn parse(text: &str) -> Topology {
    Topology::parse("topo.txt", text).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn tables_are_read_as_printed() {
    let topology = parse(TABS);
    assert_eq!((topology.gpus(), topology.devices.len()), (4, 6));
    let words: Vec<String> = topology.connections[3].iter().map(|connection| connection.word()).collect();
    assert_eq!(words, ["NV4", "NV12", "NV12", "X", "SYS", "NODE"]);
    assert_eq!((topology.devices[0].affinity.as_str(), topology.devices[5].called.as_str()), ("0-47\t0\t\tN/A", "mlx5_bond_1"));
    assert_eq!(topology.slowest(), Some(Connection::NvLink(4)));
    // Tabs turned to blanks, or windows' line ends, say the same.
    for (from, to) in [("\t", "    "), ("\n", "\r\n")] {
        let same = parse(&TABS.replace(from, to));
        assert_eq!(same.connections, topology.connections);
    }
}

#[test]
fn glued_columns_are_told_apart_by_the_other_half() {
    let topology = parse(GLUED);
    let words: Vec<Vec<String>> =
        topology.connections.iter().map(|row| row.iter().map(|connection| connection.word()).collect()).collect();
    assert_eq!(words, [["X", "NV12", "NV18"], ["NV12", "X", "NV4"], ["NV18", "NV4", "X"]]);
    let affinities: Vec<&str> = topology.devices.iter().map(|device| device.affinity.as_str()).collect();
    assert_eq!(affinities, ["0-23,48-710", "0-23,48-710", "24-47,72-951"]);
}

#[test]
fn old_tables_name_nics_by_their_driver() {
    let text = "GPU0 GPU1 mlx5_0 CPU Affinity\nGPU0 X PHB PIX 0-7\nGPU1 PHB X PHB 0-7\nmlx5_0 PIX PHB X\n";
    let topology = parse(text);
    assert_eq!((topology.gpus(), topology.devices[2].name.as_str()), (2, "mlx5_0"));
    assert_eq!(topology.slowest(), Some(Connection::HostBridge));
}

#[test]
fn a_table_is_hardware_of_a_scenario() {
    let check = |text: &str, per_node: usize, sharing: Option<usize>, gigabytes: f64| {
        let fragment = parse(text).hardware();
        let text = fragment.replacen("[hardware]\n", "[hardware]\ncosts = \"a100-nvlink\"\n", 1);
        let scenario = Scenario::parse("topo.toml", &text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!((scenario.hardware.ranks_per_node, scenario.hardware.sharing), (per_node, sharing));
        let ranklab::base::hardware::Costs::Table(table) = &scenario.hardware.costs else { panic!("a table") };
        assert!((table.inside.bytes_per_second / 1e9 - gigabytes).abs() < 1e-9);
    };
    check(TABS, 4, Some(2), 100.0);
    check(GLUED, 3, None, 100.0);
    check(&TABS.replace("NV4", "NV12"), 4, Some(2), 300.0);
    check(&TABS.replace("NV4", "SYS"), 4, Some(2), 31.0);
}

/// `hardware.topology` is the same as its sections written out, and what the scenario writes itself goes before.
#[test]
fn a_scenario_names_a_table() {
    let folder = std::env::temp_dir().join(format!("ranklab-topology-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    let read = |table: &str, more: &str| {
        std::fs::write(folder.join("topo.txt"), table).expect("a file for the test");
        let text = format!("[parallel]\ndata = 4\n[hardware]\ncosts = \"a100-nvlink\"\n{more}");
        Scenario::parse(&folder.join("scenario.toml").to_string_lossy(), &text, &[]).map(|scenario| scenario.hardware)
    };
    for table in [TABS, GLUED] {
        let written = parse(table).hardware().replacen("[hardware]\n", "", 1);
        assert_eq!(read(table, "topology = \"topo.txt\""), read(table, &written));
    }
    let own = "topology = \"topo.txt\"\nranks_per_node = 2\nnics_per_node = 1\n[hardware.inside]\nbandwidth = 7\n";
    let hardware = read(TABS, own).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((hardware.ranks_per_node, hardware.sharing), (2, Some(1)));
    let ranklab::base::hardware::Costs::Table(table) = &hardware.costs else { panic!("a table") };
    assert!((table.inside.bytes_per_second - 7e9).abs() < 1.0);
    let problems = read(&TABS.replace("NV4", "NV3"), "topology = \"topo.txt\"\n[hardware.inside]\nbandwidth = -1\n");
    assert_eq!(problems.map_or_else(|problems| problems.total, |_| 0), 1, "links agree in both halves; a bandwidth is above 0");
    let problems = read("GPU0 GPU1\nGPU0 X OK\n", "topology = \"topo.txt\"").expect_err("no table");
    assert!(problems.list[0].message.contains("`topo.txt`: "), "{problems}");
    std::fs::remove_dir_all(&folder).expect("the test's own folder");
}

/// The first problem of `text`: line, column, and a piece of its message.
fn refused(text: &str, place: (usize, usize), message: &str) {
    let problems = Topology::parse("topo.txt", text).expect_err(message);
    let first = &problems.list[0];
    assert_eq!((first.line, first.column), place, "{problems}");
    assert!(first.message.contains(message), "{problems}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let table = "GPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-7\nGPU1\tNV12\t X \t0-7\n";
    let with = |from: &str, to: &str| table.replacen(from, to, 1);
    refused("", (1, 1), "no table");
    refused("[hardware]\ncosts = 'unit'\n", (1, 1), "no table");
    refused(&with("GPU0\tGPU1", "GPU0\tGPU0"), (1, 6), "twice");
    refused(&with("GPU1\tCPU", "TPU1\tCPU"), (1, 6), "`TPU1` is no device");
    refused(&with("NV12\t0-7", "OK\t0-7"), (2, 10), "`OK` stands where GPU0 meets GPU1");
    refused(&with("NV12\t0-7", ""), (2, 10), "nothing stands where GPU0 meets GPU1");
    refused(&with("NV12\t0-7", "NV11\t0-7"), (2, 10), "GPU0 meets GPU1 by NV11, and GPU1 meets GPU0 by NV12");
    refused(&with("NV12\t0-7", "NV120\t0-7"), (2, 10), "by NV120");
    refused(&with(" X ", "SYS"), (2, 6), "GPU0 meets itself by SYS");
    refused(&table.replace("NV12", "X"), (2, 10), "X stands where GPU0 meets GPU1");
    refused(&table.replace("NV12", "NV0"), (2, 10), "NV0 is no number");
    refused(&with("GPU1\tNV12", "GPU2\tNV12"), (3, 1), "`GPU2` stands where the row of GPU1 should");
    refused(&table[..table.len() - 18], (3, 1), "the row of GPU1 is missing");
    refused(&format!("{table}\nsomething else\n"), (5, 1), "belongs to no row");
    refused("NIC0\nNIC0 X\n", (1, 1), "no device of the table is a GPU");
    refused("GPU0 NIC0\nGPU0 X PIX\nNIC0 PIX X 0-7\n", (3, 12), "behind the row of NIC0");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "GPU0", "GPU1", "GPU", "NIC0", "mlx5_0", "X", "NV", "NV12", "NV99999999999", "SYS", "\t", " ", "\n", "\r\n", "\u{1b}[4m", "\u{1b}",
            "CPU Affinity", "0-7", "Legend:\n", "NIC Legend:\n", "NIC0: a\n", "ü", "=",
        ]), 0..40),
        noise in "\\PC{0,80}",
    ) {
        for text in [words.concat(), noise] {
            match Topology::parse("any.txt", &text) {
                Ok(topology) => prop_assert!(!topology.hardware().is_empty()),
                Err(problems) => prop_assert!(!problems.render(false, 80).is_empty()),
            }
        }
    }
}
