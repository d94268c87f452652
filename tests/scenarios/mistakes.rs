//! Every kind of mistake and its message: `mistakes/NAME.toml` and `snapshots/mistake-NAME.snap`.

use insta::{assert_snapshot, with_settings};
use proptest::prelude::*;
use ranklab::base::Bytes;
use ranklab::scenario::{Problems, Scenario, decode, load};

use super::toml_files;

/// A fixture may begin with lines such as `# --set batch.steps=3`.
fn overrides(text: &str) -> Vec<String> {
    text.lines().map_while(|line| line.strip_prefix("# --set ")).map(str::to_owned).collect()
}

#[test]
fn every_mistake_has_its_message() {
    let fixtures = toml_files("tests/scenarios/mistakes");
    assert!(fixtures.len() > 40, "the fixtures are there");
    for (name, text) in fixtures {
        let result = Scenario::parse(&name, &text, &overrides(&text));
        check(name.trim_end_matches(".toml"), result.map(drop));
    }
}

/// The message is the one in `snapshots/mistake-NAME.snap`.
fn check(name: &str, result: Result<(), Problems>) {
    let problems = result.expect_err(name);
    with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        assert_snapshot!(format!("mistake-{name}"), problems.to_string());
    });
}

#[test]
fn bad_files_have_their_own_messages() {
    let parse = |bytes: &[u8]| {
        let source = decode("bad.toml", bytes.to_vec())?;
        Scenario::parse(&source.name, &source.text, &[]).map(drop)
    };
    check("file-empty", parse(b""));
    check("file-blank", parse(b" \n\t\r\n"));
    check("file-latin-1", parse(b"title = \"a\"\n# caf\xe9\n"));
    check("file-utf-16", parse(b"\xff\xfet\0i\0"));
    check("file-huge", parse(&vec![b'#'; (1 << 20) + 1]));
    check("file-missing", load("no/such/file.toml", &[]).map(drop));
    let long = [b"title = 'x' #".as_slice(), &vec![b'#'; 1 << 19]].concat();
    assert_eq!(parse(&long), Ok(()), "half a mebibyte is accepted");
}

#[test]
fn real_values_that_do_not_fit_are_refused() {
    let scenario = |values: &str| {
        let text = format!("[model]\npreset = \"gpt2\"\n[parallel]\ndata = 4\n[numerics]\nvalues = \"{values}\"\n");
        Scenario::parse("large.toml", &text, &[]).expect("the scenario is right")
    };
    let (real, shape) = (scenario("real"), scenario("shape"));
    check("larger-than-memory", real.fits("large.toml", Bytes(4 << 30)));
    let twice = Bytes(2 * shape.program_bytes().0);
    assert_eq!(shape.fits("large.toml", twice), Ok(()));
    assert!(shape.fits("large.toml", twice - Bytes(2)).is_err(), "half of the memory is for others");
    let refused = shape.fits("large.toml", Bytes(1)).expect_err("operations take memory, too");
    assert!(refused.render(false, 100).contains("operations would take"), "{}", refused.render(false, 100));
    let needed = real.real_bytes().expect("real values take memory");
    assert_eq!(real.fits("large.toml", needed), Ok(()));
    assert!(real.fits("large.toml", needed - Bytes(1)).is_err());
    assert!(needed > Bytes(4 * 124_439_808 * 16), "four replicas of parameters, gradients and two moments in f32");
}

#[test]
fn a_problem_knows_its_place_and_value() {
    let text = "title = \"ü\"\n\n[batch]\nsteps = 3 # ü\nmicro_batches =   -7\n";
    let problems = Scenario::parse("place.toml", text, &[]).expect_err("-7 is too small");
    let [problem] = problems.list.as_slice() else { panic!("one problem: {problems}") };
    assert_eq!((problem.line, problem.column), (5, 19));
    assert_eq!((problem.key.as_str(), problem.value.as_str()), ("batch.micro_batches", "-7"));
    assert_eq!(problem.allowed, "1 to 1,000,000");
}

#[test]
fn colours_change_no_word() {
    let problems = Scenario::parse("colour.toml", "[batch]\nsteps = 0\n", &[]).expect_err("0 is too small");
    let coloured = problems.render(true, 100);
    assert!(coloured.contains('\u{1b}'));
    let mut plain = String::new();
    for (index, piece) in coloured.split('\u{1b}').enumerate() {
        plain.push_str(if index == 0 { piece } else { piece.split_once('m').map_or("", |(_, rest)| rest) });
    }
    assert_eq!(plain, problems.to_string());
}

#[test]
fn a_flood_of_problems_is_cut() {
    let lines: Vec<String> = (0..20_000).map(|line| format!("key{line} = 0")).collect();
    let problems = Scenario::parse("flood.toml", &lines.join("\n"), &[]).expect_err("no such keys");
    assert_eq!((problems.list.len(), problems.total), (Problems::SHOWN, 20_000));
    assert!(problems.to_string().ends_with("and 19950 more problems"));
}

#[test]
fn strange_texts_are_refused_without_a_panic() {
    let long_line = format!("[pipeline]\nschedule = \"{}\"", "ü".repeat(200_000));
    let nested = format!("x = {}", "[".repeat(100_000));
    let tables = format!("[{}x]", "a.".repeat(100_000));
    let troubles = "[[trouble]]\n".repeat(50_000);
    for text in [&long_line, &nested, &tables, &troubles] {
        let shown = Scenario::parse("strange.toml", text, &[]).expect_err("it is strange").to_string();
        assert!(shown.len() < 100_000, "{} bytes of message", shown.len());
    }
    for text in [
        "\"\" = 1",
        "[\"\"]\ntitle = 'x'",
        "[\"hardware.inside\"]\nalpha = 1",
        "\u{feff}title = 'x'\nsed = 1",
        "\r\ntitle = 'x'\r\nsed = 1\r\n",
        "title = 'x'\rsed = 1",
        "\0",
        "a.b.c = 1\na.b = 2\n[a]\n[a.b]\n[[a]]",
    ] {
        Scenario::parse("strange.toml", text, &[]).expect_err("it is strange");
    }
}

/// Pieces of scenarios, right and wrong, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[model]",
        "[batch]",
        "[parallel]",
        "[pipeline]",
        "[numerics]",
        "[hardware]",
        "[[trouble]]",
        "[collective]",
        "[hardware.inside]",
        "layers = 10000",
        "heads = 3",
        "hidden = 1048576",
        "sequence = 16777216",
        "vocab = 1",
        "preset = 'llama-7b'",
        "kv_heads = 65536",
        "micro_batches = 1000000",
        "micro_batch_size = 65536",
        "steps = 1000000",
        "data = 65536",
        "pipeline = 65536",
        "pipeline = 3",
        "layers_per_stage = [3, 3, 2]",
        "values = 'shape'",
        "dtype = 'f64'",
        "costs = 'laptop'",
        "alpha = 1e6",
        "bandwidth = 0.01",
        "forward = 0.001",
        "memory_gb = 1e6",
        "nodes = 65536",
        "kind = 'slow-rank'",
        "kind = 'all-reduce'",
        "factor = 1e3",
        "rank = 65535",
        "bytes = 1099511627776",
        "ranks = 65536",
        "chunks = 65536",
        "algorithm = 'tree'",
        "bucket_mib = 0.00001",
        "= 1",
        "x = [",
        "\"\"\"",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|lines| lines.join("\n"))
}

fn never_panics(text: &str, overrides: &[String]) {
    match Scenario::parse("any.toml", text, overrides) {
        Ok(scenario) => drop(scenario.fits("any.toml", Bytes(1 << 30))),
        Err(problems) => drop((problems.render(false, 80), problems.render(true, 10))),
    }
}

proptest! {
    #[test]
    fn any_text_parses_or_is_refused(text in "\\PC{0,200}", line in "[a-z_.0-9]{0,20}=?\\PC{0,20}") {
        never_panics(&text, &[]);
        never_panics("title = 'x'", &[format!(" {line}"), line]);
    }

    #[test]
    fn any_mixture_of_keys_parses_or_is_refused(text in pieces(), at in 0_usize..400) {
        never_panics(&text, &[]);
        let cut = text.floor_char_boundary(at.min(text.len()));
        never_panics(&text[..cut], &["trouble.0.kind=slow-link".to_owned()]);
    }
}
