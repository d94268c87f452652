//! The plan is edited on the screen: every edit is run, refusals say why, and a sheet is never overwritten unasked.

use super::{ASCII_MONO, Lab};
use ranklab::program::plan::Plan;
use ranklab::program::sheet::Sheet;
use ranklab::scenario::Scenario;
use ranklab::tui::edit::Score;
use ranklab::tui::model::{Overlay, View};
use ranklab::tui::update::Effect;
use std::fs;

fn lab() -> Lab {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    lab.press("E");
    assert_eq!(lab.model.view, View::Edit);
    lab
}

fn plan(lab: &Lab) -> &Plan {
    lab.model.editing.as_ref().expect("a plan").editor.plan()
}

fn slots(lab: &Lab) -> f64 {
    lab.model.run.data.report.makespan
}

#[test]
fn an_edit_is_run_and_judged_by_its_par() {
    let mut lab = lab();
    let (start, par) = (plan(&lab).clone(), Score::of(&lab.model.run.data).expect("it completed"));
    let effect = lab.press(")");
    assert!(matches!(effect, Some(Effect::Run { .. })));
    assert!(plan(&lab).to_string().starts_with("0F1,0F0,0F2"), "{}", plan(&lab));
    assert_eq!(lab.model.editing.as_ref().map(|editing| editing.cursor.column), Some(1), "the cell stays under the cursor");
    assert_eq!(lab.model.run.data.plan.as_deref(), Some(plan(&lab)), "what runs is what was edited");
    assert_eq!(lab.model.run.data.report.recognised, None);
    let verdict = format!("{:?}", lab.model.run.data.report.verdict.kind);
    assert_eq!(verdict, "Equal", "the numbers are still those of one device");
    assert!(
        lab.model.message.starts_with("no schedule with a name: ") && lab.model.message.ends_with("par 33u"),
        "{}",
        lab.model.message
    );
    assert!(slots(&lab) > 33.0, "{}", slots(&lab));
    lab.press("u");
    assert_eq!(plan(&lab), &start);
    assert_eq!(lab.model.message, "you built 1F1B: 33u, par 33u");
    assert_eq!(Score::of(&lab.model.run.data), Some(par));
    lab.press("u");
    assert_eq!(lab.model.message, "nothing is left to undo");
    lab.press("U");
    assert!(plan(&lab).to_string().starts_with("0F1,0F0,0F2"));
}

#[test]
fn illegal_moves_are_refused_with_their_reason() {
    let mut lab = lab();
    lab.press("l l l l (");
    let moved = plan(&lab).clone();
    assert!(moved.to_string().starts_with("0F0,0F1,0F2,0B0,0F3"), "{moved}");
    assert_eq!(lab.press("("), None);
    let Overlay::Why { text, .. } = &lab.model.overlay else { panic!("a box: {}", lab.model.message) };
    assert!(text.contains("refused: ranks would wait in a circle") && text.contains("which stands behind 0B0 on r0"), "{text}");
    assert_eq!(plan(&lab), &moved);
    lab.press("Esc j Home )");
    assert!(lab.model.message.is_empty() || !lab.model.message.starts_with("refused"), "F0 and F1 may change places");
    lab.press("u j j Home )");
    assert_eq!(lab.model.message, "refused: 3B0 would run before 3F0, whose result it needs");
}

#[test]
fn a_plan_with_a_cell_out_of_it_waits_for_it() {
    let mut lab = lab();
    let (start, number) = (plan(&lab).clone(), lab.model.run.number);
    assert_eq!(lab.press("x"), None);
    assert!(lab.model.message.starts_with("1 cell out of the plan"), "{}", lab.model.message);
    assert_eq!(lab.model.run.number, number, "it does not run");
    lab.palette("save-plan somewhere.csv");
    assert!(lab.model.message.starts_with("cells are out of the plan"), "{}", lab.model.message);
    lab.press("p");
    assert_eq!(plan(&lab), &start);
    assert_eq!(lab.model.message, "you built 1F1B: 33u, par 33u");
}

#[test]
fn a_schedule_is_built_from_nothing() {
    let mut lab = lab();
    let rows: Vec<Vec<String>> = plan(&lab).rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    lab.palette("take-all-cells");
    assert!(plan(&lab).rows.iter().all(Vec::is_empty));
    lab.press("p");
    assert!(matches!(lab.model.overlay, Overlay::Put { .. }), "several cells belong there");
    lab.press("Esc");
    for (row, cells) in rows.iter().enumerate() {
        lab.press(if row == 0 { "Home" } else { "j Home" });
        for cell in cells {
            lab.palette(&format!("put-cell {cell}"));
        }
    }
    assert_eq!(lab.model.message, "you built 1F1B: 33u, par 33u");
}

#[test]
fn a_backward_is_split_and_its_weights_fill_a_bubble() {
    let mut lab = lab();
    for row in 0..4 {
        // From the right, so that no split moves what comes next.
        let backwards = plan(&lab).rows[row].iter().enumerate().filter(|(_, cell)| cell.to_string().contains('B'));
        for column in backwards.map(|(column, _)| column).collect::<Vec<_>>().into_iter().rev() {
            lab.press(&format!("Home {}", "l ".repeat(column)));
            lab.press("i");
        }
        lab.press("j");
    }
    assert!(slots(&lab) < 33.0, "a gradient leaves before the weights are done: {}", slots(&lab));
    assert!(format!("{:?}", lab.model.run.data.report.verdict.kind).contains("Equal"));
}

#[test]
fn a_sheet_is_saved_and_never_overwritten_unasked() {
    let folder = std::env::temp_dir().join(format!("ranklab-{}-plans", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("plan.csv");
    let mut lab = lab();
    lab.palette(&format!("save-plan {}", file.display()));
    assert!(lab.model.message.starts_with("wrote "), "{}", lab.model.message);
    let first = fs::read_to_string(&file).expect("the file");
    assert_eq!(Sheet::parse(&first).expect("a sheet").plan(), *plan(&lab));
    assert!(Scenario::parse("plan.csv", &first, &[]).is_ok(), "`ranklab run plan.csv` takes it");
    lab.press(")");
    lab.palette(&format!("save-plan {}", file.display()));
    assert!(matches!(lab.model.overlay, Overlay::Overwrite { .. }));
    lab.press("n");
    assert_eq!(fs::read_to_string(&file).expect("the file"), first, "left as it is");
    lab.palette(&format!("save-plan {}", file.display()));
    lab.press("y");
    assert!(lab.model.message.starts_with("wrote "), "{}", lab.model.message);
    let second = fs::read_to_string(&file).expect("the file");
    assert_eq!(Sheet::parse(&second).expect("a sheet").plan(), *plan(&lab));
    assert_ne!(first, second);
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "nothing else is left");
    fs::remove_dir_all(&folder).expect("the folder is there");
}

#[test]
fn knobs_keep_the_edited_plan_while_its_sizes_stay() {
    let mut lab = lab();
    lab.press(")");
    let edited = plan(&lab).clone();
    let turn = |lab: &mut Lab, key: &str, value: &str| {
        let effect = ranklab::tui::update::runs::turn(&mut lab.model, key, value);
        let answer = lab.worker.answer(effect).expect("an answer");
        lab.send(answer);
    };
    turn(&mut lab, "pipeline.p2p", "buffered");
    assert_eq!(plan(&lab), &edited);
    assert_eq!(lab.model.run.data.plan.as_deref(), Some(&edited));
    turn(&mut lab, "batch.micro_batches", "4");
    assert_eq!(lab.model.run.data.plan.as_deref(), Some(plan(&lab)), "another plan, and what is shown is it");
    assert_ne!(plan(&lab), &edited);
    lab.press("q [");
    assert_eq!(lab.model.view, View::Lesson);
}

#[test]
fn what_has_no_plan_cannot_be_edited() {
    let mut lab = Lab::start((120, 36), ASCII_MONO);
    lab.choose(2);
    lab.press("E");
    assert_eq!(lab.model.message, "this run has no plan of a pipeline to edit");
    assert_eq!(lab.model.view, View::Lesson);
    lab.press("x");
    assert_eq!(lab.model.message, "x does nothing here; ? lists the keys");
}

#[test]
fn a_plan_that_deadlocks_is_edited_until_it_runs() {
    let mut lab = Lab::opened((120, 36), ASCII_MONO);
    let effect = ranklab::tui::update::runs::turn(&mut lab.model, "pipeline.p2p", "pair-fifo");
    let answer = lab.worker.answer(effect).expect("an answer");
    lab.send(answer);
    lab.press("E");
    assert!(lab.model.editing.as_ref().is_some_and(|editing| editing.par.is_none()), "what stops is no par");
    // GPipe's order: messages go one way only, then the other.
    lab.palette("take-all-cells");
    for row in 0..4 {
        lab.press(if row == 0 { "Home" } else { "j Home" });
        for pass in ["F", "B"] {
            for micro_batch in 0..8 {
                lab.palette(&format!("put-cell {row}{pass}{micro_batch}"));
            }
        }
    }
    assert_eq!(lab.model.message, "you built GPipe: 33u");
}

/// Where every stage stands on two ranks, an edited plan still runs as one pipeline, whose copies sum their gradients. No sheet can say it.
#[test]
fn a_plan_of_two_directions_is_edited_too() {
    let mut lab = Lab::start((120, 36), ASCII_MONO);
    lab.choose(15);
    lab.press("E");
    assert_eq!(lab.model.view, View::Edit, "{}", lab.model.message);
    let (start, par) = (plan(&lab).clone(), slots(&lab));
    lab.press("l ( u");
    assert_eq!(plan(&lab), &start);
    assert!(lab.model.message.starts_with("you built DualPipe: 26u, par 26u"), "{}", lab.model.message);
    let is_near = |lab: &Lab| format!("{:?}", lab.model.run.data.report.verdict.kind) == "ExpectedDrift";
    assert!((slots(&lab) - par).abs() < 1e-9 && is_near(&lab));
    lab.press("Home )");
    assert!(lab.model.message.starts_with("no schedule with a name"), "{}", lab.model.message);
    assert!(is_near(&lab), "the numbers are still those of one device");
    lab.palette("save-plan somewhere.csv");
    assert!(lab.model.message.starts_with("each stage stands on two ranks"), "{}", lab.model.message);
}
