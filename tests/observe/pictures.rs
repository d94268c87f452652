//! Pictures for people: text, summary, SVG.

use super::scenes::{self, Scene, pipeline};
use ranklab::base::settings::{AllReduce, PointToPoint};
use ranklab::engine::session::Session;
use ranklab::observe::export::{Format, export, text};
use ranklab::observe::report::{Given, Verdict};
use ranklab::observe::{Lanes, Observed, Run, VerdictKind};

fn exported(session: &Session, format: Format) -> String {
    let verdict = Verdict { kind: VerdictKind::ExpectedDrift, max_abs_diff: Some(2.5e-7), ..Verdict::default() };
    let given = Given {
        title: "1F1B & friends".to_owned(),
        costs: "unit".to_owned(),
        recognised: None,
        algorithm: None,
        loss: vec![5.5451, 5.3],
        verdict,
        ..Given::default()
    };
    export(&Observed::new(Run::new(session.program(), session.trace())), given, format)
}

fn picture(session: &Session, width: usize) -> String {
    let run = Run::new(session.program(), session.trace());
    text::picture(&run, &Lanes::new(&run), width)
}

fn one_step(schedule: &'static str, stages: usize, micro_batches: u32) -> Session {
    Scene { steps: 1, ..pipeline(schedule, stages, micro_batches) }.record()
}

#[test]
fn the_textbook_picture() {
    insta::assert_snapshot!(picture(&one_step("1f1b", 4, 8), 80));
}

#[test]
fn pictures_with_a_summary() {
    insta::assert_snapshot!("gpipe", exported(&one_step("gpipe", 3, 4), Format::Text));
    let table = Scene { steps: 1, replicas: 2, table: true, ..pipeline("1f1b", 2, 3) };
    insta::assert_snapshot!("messages_take_time", exported(&table.record(), Format::Text));
    let stuck = Scene { p2p: PointToPoint::Blocking, ..pipeline("1f1b", 2, 4) };
    insta::assert_snapshot!("deadlock", exported(&stuck.record(), Format::Text));
    let full = scenes::all().into_iter().find(|(name, _)| name == "out of memory").expect("a scene").1;
    insta::assert_snapshot!("out_of_memory", exported(&full, Format::Text));
    let ring = scenes::record(&scenes::collective(AllReduce::Ring, 3, 3 * 4000, scenes::table()));
    insta::assert_snapshot!("ring", exported(&ring, Format::Text));
}

#[test]
fn pictures_keep_to_their_width() {
    for (name, session) in scenes::all() {
        for width in [0, 40, 41, 80, 200, 1000] {
            let picture = picture(&session, width);
            // The last line is the legend.
            let rows = picture.lines().count() - 1;
            assert!(picture.lines().take(rows).all(|line| line.chars().count() <= width.max(40)), "{name} {width}\n{picture}");
        }
    }
}

#[test]
fn a_figure_for_print() {
    insta::assert_snapshot!("figure", exported(&one_step("1f1b", 2, 2), Format::Svg));
}

#[test]
fn figures_are_balanced_and_escaped() {
    for (name, session) in scenes::all() {
        let figure = exported(&session, Format::Svg);
        let opened = figure.matches('<').count() - figure.matches("</").count() - figure.matches("/>").count();
        assert_eq!(opened, figure.matches("</").count(), "{name}");
        assert!(figure.contains("1F1B &amp; friends") && !figure.contains("NaN") && !figure.contains("inf"), "{name}");
    }
}
