//! Search for schedules: what is found was compiled and run, holds no more than it may, and is no worse than what has a name.

use ranklab::lab::search::{Row, Search, search};
use ranklab::program::sheet::Sheet;

fn text((p, m): (u32, u32), more: &str) -> String {
    format!(
        "[model]\nhidden = 8\nheads = 2\nsequence = 4\nvocab = 11\n[batch]\nmicro_batches = {m}\n[parallel]\npipeline = {p}\n{more}"
    )
}

fn run(sizes: (u32, u32), more: &str, room: Option<f64>) -> Search {
    search("test.toml", &text(sizes, more), &[], room).unwrap_or_else(|problems| panic!("{problems}"))
}

fn row<'a>(found: &'a Search, name: &str) -> &'a Row {
    found.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
}

#[test]
fn what_is_found_is_sound_and_keeps_to_its_room() {
    for (sizes, room) in
        [((2, 5), None), ((3, 6), Some(2.0)), ((4, 8), None), ((4, 8), Some(7.0)), ((5, 7), Some(1.5)), ((8, 16), None)]
    {
        let found = run(sizes, "", room);
        let made: Vec<&Row> = found.rows.iter().filter(|row| row.from.is_some()).collect();
        assert!(!made.is_empty(), "{sizes:?} {room:?}");
        for row in made {
            assert!(row.fits && row.peak <= found.room, "{sizes:?} {room:?}: {} holds {}", row.name, row.peak);
            let sheet = Sheet::parse(&row.plan.to_string()).expect("PyTorch takes it");
            assert_eq!(sheet.plan(), row.plan);
            assert_eq!(row.plan.micro_batches(), sizes.1 as usize);
        }
    }
}

/// With 1F1B's memory the line is as good as ZB-H1, the V as good as ZBV; nothing that fits is better than the best.
#[test]
fn what_is_found_is_as_good_as_what_has_a_name() {
    for sizes in [(2, 4), (4, 8), (4, 16), (8, 32)] {
        let found = run(sizes, "", None);
        let best = found.best().expect("something fits");
        assert!(found.rows.iter().filter(|row| row.fits).all(|row| row.makespan >= best.makespan));
        assert!(row(&found, "found-line").makespan <= row(&found, "zb-h1").makespan, "{sizes:?}");
        assert!(row(&found, "found-v").makespan <= row(&found, "1f1b").makespan, "{sizes:?}");
        assert!(best.makespan <= row(&found, "zbv").makespan, "{sizes:?}");
    }
    let found = run((4, 8), "", Some(7.0));
    assert!(row(&found, "found-line").makespan <= row(&found, "zb-h2").makespan);
}

/// However little room there is: what is found of a placement is at least as good as every named schedule of it that fits.
#[test]
fn nothing_found_is_worse_than_what_has_a_name() {
    let of = [
        ("found-line", ["naive", "gpipe", "1f1b", "zb-h1", "zb-h2"].as_slice()),
        ("found-v", &["zbv", "v-half", "v-min", "dualpipev"]),
    ];
    for (sizes, room) in
        [((4, 8), 2.0), ((4, 12), 2.0), ((4, 12), 3.0), ((3, 6), 1.0), ((4, 4), 2.5), ((6, 12), 2.0), ((8, 16), 3.0)]
    {
        let found = run(sizes, "", Some(room));
        for (name, named) in of {
            let fitting = found.rows.iter().filter(|row| row.fits && named.contains(&row.name.as_str()));
            let Some(shortest) = fitting.map(|row| row.makespan).reduce(f64::min) else { continue };
            let made = row(&found, name);
            assert!(made.fits && made.makespan <= shortest, "{sizes:?} room {room}: {name} {} > {shortest}", made.makespan);
        }
        let (best, saved) = (found.best().expect("something fits"), found.best_found().expect("something was found"));
        assert!(
            saved.makespan <= best.makespan,
            "{sizes:?} room {room}: {} saved, {} {}",
            saved.makespan,
            best.name,
            best.makespan
        );
    }
}

/// Of equals the one that holds less is saved, as the table says.
#[test]
fn what_is_saved_is_what_the_table_calls_best() {
    for room in [None, Some(7.0)] {
        let found = run((4, 8), "", room);
        let saved = found.best_found().expect("something was found");
        let same = found.rows.iter().filter(|row| row.from.is_some() && row.fits && (row.makespan - saved.makespan).abs() < 1e-9);
        assert!(same.map(|row| row.peak).all(|peak| peak >= saved.peak));
    }
}

/// A published schedule supposes equal ranks. Beside a slow one a search finds better.
#[test]
fn unequal_ranks_are_where_a_search_pays() {
    let slow = "[[trouble]]\nkind = \"slow-rank\"\nrank = 1\nfactor = 1.5\n";
    let found = run((4, 12), slow, None);
    let best = found.best().expect("something fits");
    let named =
        found.rows.iter().filter(|row| row.from.is_none() && row.fits).map(|row| row.makespan).fold(f64::INFINITY, f64::min);
    assert!(best.makespan <= named, "{} {}", best.makespan, named);
}

#[test]
fn messages_that_take_time_are_seen() {
    let table = "[hardware]\ncosts = \"h100-nvlink\"\nranks_per_node = 1\n";
    let found = run((4, 8), table, None);
    assert_eq!(found.unit, "ns");
    assert!(found.rows.iter().any(|row| row.from.is_some()));
}

#[test]
fn a_sheet_is_compared_with_what_is_found() {
    let sheet = "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n";
    let found = search("plan.csv", sheet, &["model.layers=4".to_owned()], None).unwrap_or_else(|problems| panic!("{problems}"));
    assert!((row(&found, "sheet").makespan - row(&found, "gpipe").makespan).abs() < 1e-9);
    assert!(found.best().is_some_and(|best| best.makespan <= 8.0));
}

#[test]
fn a_bare_collective_has_no_schedule() {
    assert!(search("ring.toml", "[collective]\nkind = \"all-reduce\"\nbytes = 64\nranks = 4\n", &[], None).is_err());
}
