//! Editing plans: what is accepted can run, what is refused cannot, and every edit can be undone.

use proptest::prelude::*;
use proptest::sample::Index;
use ranklab::program::edit::{Edit, Editor, Place, Refusal};
use ranklab::program::plan::{Cell, Pass, Plan, Slot};
use ranklab::program::sheet::Sheet;
use ranklab::schedule::{Schedule, Size};

fn plan(name: &str, ranks: u32, chunks: u32, micro_batches: u32) -> Plan {
    let schedule = Schedule::find(name).expect("a schedule");
    let size = Size { ranks, chunks, segments: 1, micro_batches };
    assert_eq!(schedule.check(size), Ok(()), "{name} {size:?}");
    (schedule.plan)(size)
}

fn plans() -> Vec<Plan> {
    vec![
        plan("1f1b", 3, 1, 4),
        plan("gpipe", 2, 1, 3),
        plan("zb-h1", 4, 1, 5),
        plan("interleaved", 2, 2, 4),
        plan("zbv", 2, 2, 3),
        plan("dualpipev", 2, 2, 4),
        plan("chimera", 4, 1, 4),
        plan("dualpipe", 2, 1, 6),
    ]
}

/// Whether all cells of the rows run, those of `beside` whenever they can: by trying again and again.
fn runs(rows: &[Vec<Cell>], beside: &[Cell]) -> bool {
    let last = rows.iter().flatten().chain(beside).flat_map(|cell| cell.slots()).map(|slot| slot.stage).max().unwrap_or(0);
    let mut done: Vec<Slot> = Vec::new();
    let has = |done: &[Slot], stage: u32, pass: Pass, micro_batch: u32| done.contains(&Slot { stage, pass, micro_batch });
    let backward = |done: &[Slot], stage, m| has(done, stage, Pass::B, m) || has(done, stage, Pass::I, m);
    let ready = |done: &[Slot], slot: Slot| {
        let Slot { stage, pass, micro_batch } = slot;
        match pass {
            Pass::F => stage == 0 || has(done, stage - 1, Pass::F, micro_batch),
            Pass::B | Pass::I => {
                has(done, stage, Pass::F, micro_batch) && (stage == last || backward(done, stage + 1, micro_batch))
            }
            Pass::W => has(done, stage, Pass::I, micro_batch),
        }
    };
    let mut queues: Vec<&[Cell]> = rows.iter().map(Vec::as_slice).chain(beside.chunks(1)).collect();
    loop {
        let before = done.len();
        for queue in &mut queues {
            while let Some(cell) = queue.first().copied().filter(|cell| cell.slots().all(|slot| ready(&done, slot))) {
                done.extend(cell.slots());
                *queue = &queue[1..];
            }
        }
        if done.len() == before {
            return queues.iter().all(|queue| queue.is_empty());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Move(Index, Index, Index),
    Take(Index, Index),
    Put(Index, Index, Index),
    Split(Index, Index),
    Join(Index, Index),
    Undo,
    Redo,
}

fn step() -> impl Strategy<Value = Step> {
    let i = any::<Index>;
    prop_oneof![
        4 => (i(), i(), i()).prop_map(|(a, b, c)| Step::Move(a, b, c)),
        2 => (i(), i()).prop_map(|(a, b)| Step::Take(a, b)),
        3 => (i(), i(), i()).prop_map(|(a, b, c)| Step::Put(a, b, c)),
        1 => (i(), i()).prop_map(|(a, b)| Step::Split(a, b)),
        1 => (i(), i()).prop_map(|(a, b)| Step::Join(a, b)),
        1 => Just(Step::Undo),
        1 => Just(Step::Redo),
    ]
}

/// The edit of `step`; places may lie one behind the end of a row.
fn edit(editor: &Editor, step: &Step) -> Option<Edit> {
    let rows = &editor.plan().rows;
    let place = |row: &Index, column: &Index| {
        let row = row.index(rows.len());
        Place { row, column: column.index(rows[row].len() + 1) }
    };
    Some(match step {
        Step::Move(row, from, to) => Edit::Move(place(row, from), place(row, to).column),
        Step::Take(row, column) => Edit::Take(place(row, column)),
        Step::Put(number, row, column) => Edit::Put(number.index(editor.shelf().len() + 1), place(row, column)),
        Step::Split(row, column) => Edit::Split(place(row, column)),
        Step::Join(row, column) => Edit::Join(place(row, column)),
        Step::Undo | Step::Redo => return None,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_accepted_runs_and_what_is_refused_does_not(which in 0_usize..8, steps in prop::collection::vec(step(), 1..40)) {
        let mut editor = Editor::new(plans()[which].clone());
        for step in &steps {
            let Some(edit) = edit(&editor, step) else { continue };
            let before = editor.clone();
            match editor.apply(edit) {
                Ok(()) => prop_assert!(runs(&editor.plan().rows, editor.shelf()), "{:?} leaves {}", edit, editor.plan()),
                Err(refusal) => {
                    prop_assert_eq!(&editor, &before, "a refused edit changes nothing");
                    prop_assert!(!refusal.to_string().is_empty());
                    if let (Edit::Move(from, to), Refusal::Early { .. } | Refusal::Circle(_)) = (edit, &refusal) {
                        let mut rows = before.plan().rows.clone();
                        let cell = rows[from.row].remove(from.column);
                        let to = to.min(rows[from.row].len());
                        rows[from.row].insert(to, cell);
                        prop_assert!(!runs(&rows, before.shelf()), "{} was refused: {}", cell, refusal);
                    }
                }
            }
            if editor.is_whole() && !editor.plan().is_two_way() {
                let sheet = Sheet::parse(&editor.plan().to_string());
                prop_assert!(sheet.is_ok(), "{:?}", sheet);
                prop_assert_eq!(&sheet.unwrap().plan(), editor.plan());
            }
        }
    }

    #[test]
    fn undo_leads_back_to_the_start_and_redo_to_the_end(which in 0_usize..8, steps in prop::collection::vec(step(), 1..40)) {
        let start = plans()[which].clone();
        let mut editor = Editor::new(start.clone());
        for step in &steps {
            match step {
                Step::Undo => _ = editor.undo(),
                Step::Redo => _ = editor.redo(),
                step => _ = edit(&editor, step).map(|edit| editor.apply(edit)),
            }
        }
        let end = (editor.plan().clone(), editor.shelf().to_vec());
        let (done, _) = editor.depth();
        for _ in 0..done {
            prop_assert!(editor.undo());
        }
        prop_assert!(!editor.undo());
        prop_assert_eq!((editor.plan(), editor.shelf().len()), (&start, 0));
        for _ in 0..done {
            prop_assert!(editor.redo());
        }
        prop_assert_eq!((editor.plan(), editor.shelf()), (&end.0, end.1.as_slice()));
    }
}

fn at(row: usize, column: usize) -> Place {
    Place { row, column }
}

#[test]
fn a_refusal_names_the_op_that_would_break_the_order() {
    let check = |plan: Plan, edit: Edit, expected: &str| {
        let refusal = Editor::new(plan).apply(edit).expect_err(expected);
        assert_eq!(refusal.to_string(), expected);
    };
    let gpipe = || plan("gpipe", 2, 1, 3);
    check(gpipe(), Edit::Move(at(0, 3), 0), "0B0 would run before 0F0, whose result it needs");
    check(gpipe(), Edit::Move(at(1, 0), 4), "1B0 would run before 1F0, whose result it needs");
    let circle = "1B0 stands behind 1F1 on r1, which needs 0F1, which stands behind 0B0 on r0, which needs 1B0";
    check(gpipe(), Edit::Move(at(0, 3), 1), &format!("ranks would wait in a circle: {circle}"));
    check(gpipe(), Edit::Move(at(1, 2), 2), "it stands there already");
    check(gpipe(), Edit::Split(at(0, 0)), "0F0 has no parts: a whole backward (B) does, and a pair that runs as one");
    check(gpipe(), Edit::Join(at(0, 5)), "0B2 is the last of its row: nothing stands behind it to join");
    check(gpipe(), Edit::Take(at(7, 0)), "no cell stands there");
    check(gpipe(), Edit::Put(0, at(0, 0)), "no cell stands there");
    let mut editor = Editor::new(gpipe());
    editor.apply(Edit::Take(at(1, 2))).expect("any cell can be taken out");
    let refusal = editor.apply(Edit::Put(0, at(0, 2))).expect_err("another rank's");
    assert_eq!(refusal.to_string(), "1F2 runs on r1, which holds the parameters of stage 1");
}

/// Where each stage stands on two ranks, a slot belongs to the one that takes its micro-batch.
#[test]
fn a_slot_goes_back_to_its_own_direction() {
    let mut editor = Editor::new(plan("chimera", 4, 1, 4));
    let start = editor.plan().clone();
    assert!(start.is_two_way() && !plan("zbv", 2, 2, 3).is_two_way());
    editor.apply(Edit::Take(at(1, 0))).expect("any cell can be taken out");
    assert_eq!((editor.shelf()[0].to_string().as_str(), editor.shelf_of(1).count(), editor.shelf_of(2).count()), ("1F0", 1, 0));
    let refusal = editor.apply(Edit::Put(0, at(2, 0))).expect_err("the other direction's");
    assert_eq!(refusal.to_string(), "1F0 runs on r1: micro-batch 0 goes the other way through the pipeline");
    editor.apply(Edit::Put(0, at(1, 0))).expect("where it was");
    assert_eq!(editor.plan(), &start);
}

#[test]
fn a_split_backward_is_joined_again_only_with_its_own() {
    let mut editor = Editor::new(plan("1f1b", 2, 1, 3));
    let start = editor.plan().clone();
    editor.apply(Edit::Split(at(1, 1))).expect("a whole backward");
    assert_eq!(editor.plan().to_string(), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1I0,1W0,1F1,1B1,1F2,1B2\n");
    editor.apply(Edit::Move(at(1, 2), 6)).expect("weights can wait");
    assert!(matches!(editor.apply(Edit::Join(at(1, 1))), Err(Refusal::Apart(..))));
    editor.apply(Edit::Move(at(1, 6), 2)).expect("back again");
    editor.apply(Edit::Join(at(1, 1))).expect("its own weights");
    assert_eq!(editor.plan(), &start);
}
