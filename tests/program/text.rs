//! Program texts: compiled programs print and parse at every pass, texts written by hand mean what they say, mistakes are all reported.

use proptest::prelude::*;

use super::{collective, training};
use crate::support::scenario;
use ranklab::base::units::Bytes;
use ranklab::compile;
use ranklab::program::head::head;
use ranklab::program::text::parse;
use ranklab::program::{OpKind, Program};
use ranklab::scenario::Scenario;

/// Prints `program`, and reads the text back.
fn round_trip(program: &Program) -> Result<(), TestCaseError> {
    let text = program.to_string();
    let read = parse(&text).map_err(|errors| TestCaseError::fail(format!("{errors:#?}\n{text}")))?;
    prop_assert!(read == *program, "read back as\n{read}\ninstead of\n{text}");
    prop_assert_eq!(read.to_string(), text);
    Ok(())
}

fn at_every_pass(scenario: &Scenario) -> Result<(), TestCaseError> {
    compile::pass_names().try_for_each(|pass| {
        let compiled = compile::compile_until(scenario, pass).expect("a name of the table");
        round_trip(&compiled.program)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn compiled_programs_print_and_parse(scenario in training()) {
        at_every_pass(&scenario)?;
    }

    #[test]
    fn collectives_print_and_parse(scenario in collective()) {
        at_every_pass(&scenario)?;
    }

    /// Ops taken out, waits and frees added, ops moved, names taken twice: what people and trouble rules do to programs.
    #[test]
    fn changed_programs_print_and_parse(scenario in training(), changes in prop::collection::vec((0..6_u8, any::<u32>(), any::<u32>()), 1..9)) {
        let mut program = compile::compile(&scenario).program;
        for (change, a, b) in changes {
            change_program(&mut program, change, a as usize, b as usize);
        }
        round_trip(&program)?;
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(rank 0\n)?(( |%|x1.0|->|<-|r0|after|free|by|send|recv|forward|blocks.0|p0..p9|\\[|\n|\"|#|[0-9]{1,10}| compute| all-reduce|buffers\n|kernels\n|layouts\n|l0 f32\\[4\\]|c0|k0|b0|g0|.){0,60})") {
        let _ = parse(&text);
    }

    /// One line of a good text, cut or with a word replaced: read or refused, and refused by line.
    #[test]
    fn a_broken_line_is_refused(line: prop::sample::Index, word: prop::sample::Index, with in "[a-z0-9.%>-]{0,6}") {
        let text = compile::compile(&scenario(BROKEN)).program.to_string();
        let lines: Vec<&str> = text.lines().collect();
        let number = line.index(lines.len());
        let words: Vec<&str> = lines[number].split(' ').collect();
        let place = word.index(words.len());
        let broken: Vec<&str> = words.iter().enumerate().map(|(at, word)| if at == place { with.as_str() } else { *word }).collect();
        let broken: Vec<String> = lines.iter().enumerate().map(|(at, line)| if at == number { broken.join(" ") } else { (*line).to_owned() }).collect();
        let _ = parse(&broken.join("\n"));
    }
}

const BROKEN: &str = "[model]\nlayers = 2\nhidden = 24\nheads = 3\nsequence = 11\nvocab = 61\n[batch]\nmicro_batches = 2\nsteps = 1\n[parallel]\npipeline = 2\n";

fn change_program(program: &mut Program, change: u8, a: usize, b: usize) {
    let ops: Vec<_> = program.all().collect();
    let op = ops[a % ops.len()];
    let rank = program.rank_of(op);
    match change {
        0 => program.set_kind(op, program.kind(op).skipped()),
        1 => {
            let order = &program.order[rank.index()];
            program.wait(op, order[b % order.len()]);
        }
        2 => {
            let buffer = ranklab::base::BufferId::new(b % program.buffers.len());
            program.free(op, buffer);
        }
        3 => {
            let length = program.order[rank.index()].len();
            program.order[rank.index()].swap(a % length, b % length);
        }
        4 => {
            let (from, to) = (a % program.buffers.len(), b % program.buffers.len());
            program.buffers[to].name = program.buffers[from].name;
        }
        _ => {
            let name = program.streams[0].name.clone();
            program.streams[0].name = format!("{name} \"{}\"\n# after {b}", a % 7);
        }
    }
}

#[test]
fn a_program_written_by_hand_may_leave_much_out() {
    let program = parse(
        "# Two ranks exchange a number.
rank 0
  compute  load-tokens -> tokens.0
  %7 wire  send tokens.0 -> r1  free tokens.0
rank 1
  wire     recv tokens.0 <- r0
  step 1
  compute  skipped 1F0 forward blocks.2 tokens.0 tokens.0@r0 -> x3.0  after %7
  compute  all-reduce sum x3.0
",
    )
    .expect("a program");
    assert_eq!(program.ranks(), 2);
    let order: Vec<Vec<u32>> = program.order.iter().map(|ops| ops.iter().map(|op| op.0).collect()).collect();
    assert_eq!(order, [vec![0, 7], vec![1, 2, 3]]);
    let heads: Vec<String> = program.all().map(|op| head(&program, op).to_string()).collect();
    assert_eq!(heads, ["load-tokens", "send tokens.0 -> r1", "recv tokens.0 <- r0", "1F0 forward blocks.2", "all-reduce sum"]);
    let forward = program.op(program.order[1][1]);
    assert!(matches!(forward.kind, OpKind::Skipped(_)));
    assert_eq!((forward.origin.step, forward.reads.len(), forward.writes.len()), (1, 2, 1));
    assert_eq!(program.waits(forward.id).map(|op| op.0).collect::<Vec<_>>(), [7]);
    assert_eq!(program.collectives[0].bytes, Bytes(4));
    assert_eq!(program.groups[0].ranks.len(), 2);
    assert_eq!(parse(&program.to_string()).as_ref(), Ok(&program));
}

/// Compares the messages for `text` with those expected, one a line.
fn refused(text: &str, expected: &[&str]) {
    let errors = parse(text).expect_err(text);
    let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(messages, expected, "{text}");
}

#[test]
fn mistakes_are_all_reported_with_their_lines() {
    refused("", &["line 1: `` is the end of the text, and there is no rank (write `rank 0`)"]);
    refused(
        "  compute flatten\nrank 1\nranks 0\nrank 0 0\n",
        &[
            "line 1: `compute flatten` stands before any section (begin with `rank 0`)",
            "line 2: `rank 1` stands where rank 0 is expected",
            "line 3: `ranks` is no section (did you mean `rank`?)",
            "line 4: `0` is one word too many",
        ],
    );
    refused(
        "rank 0\n  compute forwards blocks.1\n  compute forward\n  compute forward block.1\n  compute send x1.0\n  compute recv x1 <- r0\n  \
         compute send x1.0 -> r9\n  %x compute flatten\n  %1 compute flatten\n  %1 compute flatten  after %5 by me\n  \
         compute flatten  after %5\n  %99999 compute flatten\n  \"compute flatten\n  compute flatten p9..p3\n",
        &[
            "line 2: `forwards` is nothing that an op does (did you mean `forward`?)",
            "line 3: `forward` is the last word of the line, but a part for `forward` to work on must follow (parts are `embedding`, \
             `blocks.0` and so on, and `head`)",
            "line 4: `block.1` is no part for `forward` to work on (parts are `embedding`, `blocks.0` and so on, and `head`)",
            "line 5: `x1.0` is the last word of the line, but a `->` and the rank that receives must follow",
            "line 6: `x1` is no buffer (buffers are told as x3.0, x3.0@r1, p3..p9, or b12)",
            "line 7: `r9` is no rank of this program, which has 1 (each rank has a section such as `rank 0`)",
            "line 8: `%x` is no id of an op (ids are %0, %1, ...)",
            "line 10: `%1` is the id of two ops",
            "line 11: `%5` is waited for, but no line has this id",
            "line 12: `%99999` is too large for so few ops: the largest id is %4191",
            "line 13: `\"compute flatten` has no closing quote",
            "line 14: `p9..p3` is no buffer (buffers are told as x3.0, x3.0@r1, p3..p9, or b12)",
        ],
    );
    refused(
        "setting\n  run steps two\n  run stepz 2\n  model layers 0\n  model layers 1\nstreams\n  compute\n  compute\nchannels\n  c1 r0 -> r0\n\
         kernels\n  k0 forward head flops -1\nlayouts\n  l0 f31[2]\n  l0 f32[9999999999,9999999999]\n  l0 f32[2]\nbuffers\n  r0 x1.0\n  r0 l1 x1.0\n  \
         r0 l0 x1.0=messages\nbuffers\nrank 0\n  out flatten\n  compute flatten x7.7\n",
        &[
            "line 2: `two` is no value of steps (steps takes a whole number)",
            "line 3: `stepz` is no field (did you mean `steps`?)",
            "line 4: `0` is no value of layers (layers takes a whole number from 1 to 1048576)",
            "line 5: `hidden, heads, kv-heads, sequence, vocab...` is missing",
            "line 8: `compute` is the name of two streams",
            "line 10: `c1` is no id of this entry, which is c0",
            "line 12: `-1` is no value of flops (flops takes a whole number)",
            "line 14: `f31[2]` is no tensor such as f32[1,32,64]",
            "line 15: `f32[9999999999,9999999999]` is no tensor such as f32[1,32,64]",
            "line 18: `x1.0` has no layout (write one before it: l0)",
            "line 19: `l1` is not declared (a section `layouts` lists all layouts)",
            "line 20: `x1.0=messages` is no layout, buffer, or range of buffers",
            "line 21: `buffers` is the name of two sections",
            "line 23: `out` is no stream (known are compute)",
            "line 24: `flatten` is no kernel of this program (declare it under `kernels`)",
        ],
    );
}

#[test]
fn folded_programs_print_and_parse() {
    for (mesh, more, fold) in [
        ("data = 6", "[fsdp]\nshard_size = 3\n", 6),
        ("data = 6\ntensor = 4\norder = \"dp-tp-cp-pp\"", "[fsdp]\nshard_size = 3\n", 24),
        ("data = 4\ncontext = 2\ntensor = 2", "[fsdp]\nshard_size = 4\n", 8),
        ("data = 4\nexpert = 2\ntensor = 2", "[experts]\ncount = 4\n", 4),
    ] {
        let text = format!(
            "[parallel]\npipeline = 2\n{mesh}\n[numerics]\nvalues = \"shape\"\n[model]\nbytes_per_parameter = \"mixed-adam-20\"\n\
             layers = 2\nkv_heads = 2\n[batch]\nmicro_batches = 1\nsteps = 1\n[data_parallel]\nstrategy = \"fsdp\"\nexpand = false\n{more}"
        );
        let scenario = scenario(&text);
        assert_eq!(compile::compile(&scenario).program.fold(), fold, "{text}");
        at_every_pass(&scenario).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_compiled_program_reads_well() {
    let text = compile::compile(&scenario(BROKEN)).program.to_string();
    insta::assert_snapshot!(text);
}
