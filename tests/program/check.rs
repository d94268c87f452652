//! The static check: compiled programs are sound, every broken one is told, and races are those that brute force finds.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{collective, training};
use crate::support::scenario;
use ranklab::base::OpId;
use ranklab::compile;
use ranklab::program::text::parse;
use ranklab::program::{FindingKind, Program, check};
use ranklab::scenario::Scenario;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn compiled_programs_are_sound(training in training(), collective in collective()) {
        for scenario in [training, collective] {
            let findings = check(&compile::compile(&scenario).program);
            prop_assert!(findings.is_empty(), "{}", findings[0]);
        }
    }

    #[test]
    fn missing_waits_of_collectives_are_races(collective in collective(), wait in any::<prop::sample::Index>()) {
        without_one_wait(&collective, wait)?;
    }
}

proptest! {
    // Brute force takes its time.
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Every wait that is taken out makes a race, unless it protects nothing or others imply it: brute force knows.
    #[test]
    fn missing_waits_are_races(training in training(), wait in any::<prop::sample::Index>()) {
        without_one_wait(&training, wait)?;
    }
}

fn without_one_wait(scenario: &Scenario, wait: prop::sample::Index) -> Result<(), TestCaseError> {
    let text = compile::compile(scenario).program.to_string();
    let waits: Vec<(usize, usize)> = text.match_indices(" %").filter_map(|(at, _)| wait_at(&text, at)).collect();
    if waits.is_empty() {
        return Ok(());
    }
    let (start, end) = *wait.get(&waits);
    let shorter = format!("{}{}", &text[..start], &text[end..]).replace("  after  ", "  ").replace("  after\n", "\n");
    same_races(&parse(&shorter).expect("a text without one wait"))
}

/// The extent of the id at `at`, if an op waits for it.
fn wait_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    let end = at + 1 + text[at + 1..].find([' ', '\n'])?;
    line.contains("  after").then_some((at, end))
}

/// The check finds races exactly where brute force finds some.
fn same_races(program: &Program) -> Result<(), TestCaseError> {
    let expected = races(program);
    let findings = check(program);
    for finding in &findings {
        prop_assert_eq!(finding.kind, FindingKind::Race, "{}", finding);
        prop_assert!(expected.contains(&(finding.ops[0], finding.ops[1])), "{}", finding);
    }
    prop_assert_eq!(findings.is_empty(), expected.is_empty(), "{:?}", expected);
    Ok(())
}

/// All pairs of ops of a rank that use one buffer, one of them changing or freeing it, and that no order joins.
fn races(program: &Program) -> BTreeSet<(OpId, OpId)> {
    let mut races = BTreeSet::new();
    for order in &program.order {
        let mut before: Vec<BTreeSet<OpId>> = Vec::new();
        for (place, &op) in order.iter().enumerate() {
            let stream = |other: &OpId| program.stream_of(*other) == program.stream_of(op);
            let direct: Vec<OpId> = order[..place].iter().copied().filter(stream).chain(program.waits(op)).collect();
            let mut all: BTreeSet<OpId> = direct.iter().copied().collect();
            for on in direct {
                all.extend(&before[order.iter().position(|&other| other == on).expect("an op of the rank")]);
            }
            races.extend(order[..place].iter().filter(|&&a| conflict(program, a, op) && !all.contains(&a)).map(|&a| (a, op)));
            before.push(all);
        }
    }
    races
}

fn conflict(program: &Program, a: OpId, b: OpId) -> bool {
    let changes = |op: OpId| program.op(op).writes.iter().copied().chain(program.frees(op)).collect::<BTreeSet<_>>();
    let uses = |op: OpId| program.op(op).reads.iter().copied().chain(changes(op)).collect::<BTreeSet<_>>();
    !changes(a).is_disjoint(&uses(b)) || !changes(b).is_disjoint(&uses(a))
}

#[test]
fn every_wait_of_a_pipeline_with_data_parallelism_is_judged_as_brute_force_does() {
    let text = "[model]\nlayers = 2\nhidden = 24\nheads = 3\nsequence = 11\nvocab = 61\n[batch]\nmicro_batches = 2\nsteps = 1\n\
                [parallel]\npipeline = 2\ndata = 2\n";
    let program = compile::compile(&scenario(text)).program.to_string();
    let waits: Vec<(usize, usize)> = program.match_indices(" %").filter_map(|(at, _)| wait_at(&program, at)).collect();
    let mut harmful = 0;
    for (start, end) in waits {
        let shorter = format!("{}{}", &program[..start], &program[end..]).replace("  after  ", "  ").replace("  after\n", "\n");
        let shorter = parse(&shorter).expect("a text without one wait");
        same_races(&shorter).expect("the same races");
        harmful += usize::from(!check(&shorter).is_empty());
    }
    assert!(harmful > 20, "only {harmful} waits protect anything");
}

/// Two ranks: a forward pass, its result sent on, and a sum over both.
const SOUND: &str = "\
streams
  compute
  out
  in
layouts
  l0 f32[4]
  l1 f32[8]
buffers
  r0 l0 tokens.0 tokens.1 x0.0 x0.1 l1 grad0
  r1 l0 x0.0 x0.1 x1.0 l1 grad0
rank 0
  %0 compute load-tokens -> tokens.0
  %1 compute load-tokens -> tokens.1
  %2 compute forward embedding tokens.0 -> x0.0  free tokens.0
  %3 out send x0.0 -> r1  after %2  free x0.0
  %4 compute forward embedding tokens.1 -> x0.1  free tokens.1
  %5 out send x0.1 -> r1  after %4  free x0.1
  %6 compute all-reduce sum grad0
rank 1
  %7 in recv x0.0 <- r0
  %8 in recv x0.1 <- r0
  %9 compute forward blocks.0 x0.0 -> x1.0  after %7  free x0.0
  %10 compute flatten x1.0 x0.1  after %8  free x1.0 x0.1
  %11 compute all-reduce sum grad0
";

/// Replaces `from` by `to` in the sound text, and tells what is found then.
fn broken(from: &str, to: &str) -> String {
    assert_eq!(SOUND.matches(from).count(), 1, "{from}");
    let program = parse(&SOUND.replace(from, to)).unwrap_or_else(|errors| panic!("{from}: {errors:#?}"));
    let findings: Vec<String> = check(&program).iter().map(|finding| format!("  {finding}\n")).collect();
    format!("{} => {}\n{}", from.trim(), to.trim(), findings.concat())
}

#[test]
fn a_sound_program_has_no_findings() {
    assert_eq!(broken("rank 1", "rank 1"), "rank 1 => rank 1\n");
}

#[test]
fn every_kind_of_fault_is_told() {
    let mut text = String::new();
    for (from, to) in [
        ("  after %7", ""),
        ("  after %2  free x0.0", "  after %2  free x0.0 x0.0"),
        ("forward embedding tokens.1 -> x0.1  free tokens.1", "forward embedding tokens.1 -> x0.1"),
        ("flatten x1.0 x0.1  after %8  free x1.0 x0.1", "flatten x1.0 x0.1  after %8  free x1.0 x0.1 grad0"),
        ("-> x1.0  after %7  free x0.0", "-> x1.0  after %7  free x0.0 x0.1"),
        ("  %1 compute load-tokens -> tokens.1\n", ""),
        ("%7 in recv x0.0 <- r0\n  %8 in recv x0.1", "%8 in recv x0.1 <- r0\n  %7 in recv x0.0"),
        ("  %5 out send x0.1 -> r1  after %4  free x0.1\n", ""),
        ("rank 1\n", "rank 1\n  compute send grad0 -> r0\n"),
        ("l1 grad0\n  r1", "l0 grad0\n  r1"),
        ("r1 l0 x0.0 x0.1", "r1 l1 x0.0 l0 x0.1"),
        ("%11 compute all-reduce sum grad0", "%11 compute all-reduce sum"),
        ("  %11 compute all-reduce sum grad0\n", ""),
        ("  %6 compute all-reduce sum grad0\n", "  %6 compute all-reduce sum grad0\n  compute all-reduce sum grad0\n"),
        ("  %3 out send x0.0 -> r1  after %2", "  %3 out send x0.0 -> r1  after %2 %4"),
        ("  after %8", "  after %8 %4"),
        ("flatten x1.0 x0.1 ", "flatten x1.0 x0.1 tokens.0@r0 "),
        ("%6 compute all-reduce sum grad0", "%6 compute all-reduce sum grad0 -> grad0 x0.1"),
    ] {
        text.push_str(&broken(from, to));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn an_op_in_a_wrong_place_is_told() {
    let told = |change: fn(&mut Vec<Vec<OpId>>)| {
        let mut program = parse(SOUND).expect("a program");
        change(&mut program.order);
        check(&program).first().map(ToString::to_string)
    };
    let hint = "an op stands once, in the list of its own rank";
    assert_eq!(
        told(|order| order[0].push(OpId(0))),
        Some(format!("misplaced-op on rank 0: `load-tokens` (%0) stands twice in the list of its rank; {hint}"))
    );
    assert_eq!(
        told(|order| order[1].push(OpId(3))),
        Some(format!("misplaced-op on rank 1: `send x0.0 -> r1` (%3) of r0 stands in the list of r1; {hint}"))
    );
}
