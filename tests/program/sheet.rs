//! PyTorch's pipelining CSV: what is read, in which letters, and what is refused where.

use proptest::prelude::*;
use ranklab::program::plan::{Pass, Plan, Slot};
use ranklab::program::sheet::{Dialect, Sheet};
use ranklab::schedule::{Placement, SCHEDULES, Size};

/// 1F1B on two ranks with its messages, as PyTorch 2.15 writes it.
const MESSAGES: &str = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\r\n\
                        1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\r\n";

fn read(text: &str) -> Sheet {
    Sheet::parse(text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"))
}

#[test]
fn plans_of_all_schedules_are_read_back() {
    let mut read_back = 0;
    for schedule in SCHEDULES {
        for (ranks, micro_batches) in [(1, 2), (2, 4), (3, 6), (4, 8), (4, 12), (5, 10)] {
            let size =
                Size { ranks, chunks: schedule.placement.usual_chunks(), segments: schedule.usual_segments(), micro_batches };
            if schedule.check(size).is_err() {
                continue;
            }
            let plan = (schedule.plan)(size);
            let text = plan.to_string();
            if schedule.placement == Placement::TwoWay {
                let errors = Sheet::parse(&text).expect_err("PyTorch wants each stage on one rank");
                assert!(errors[0].problem.contains("second rank"), "{errors:?}");
            } else {
                assert_eq!(read(&text).plan(), plan, "{} {size:?}", schedule.name);
                assert_eq!(read(&text).to_string(), text);
                read_back += 1;
            }
        }
    }
    assert!(read_back > 50, "{read_back}");
}

/// Plan to sheet with messages and back, for every schedule: as PyTorch lowers it, and loads it.
#[test]
fn plans_of_all_schedules_get_their_messages() {
    let mut lowered = 0;
    for schedule in SCHEDULES {
        for (ranks, micro_batches) in [(1, 2), (2, 4), (3, 6), (4, 8), (4, 12), (5, 10), (8, 16)] {
            let size =
                Size { ranks, chunks: schedule.placement.usual_chunks(), segments: schedule.usual_segments(), micro_batches };
            if schedule.check(size).is_err() {
                continue;
            }
            let plan = (schedule.plan)(size);
            if schedule.placement == Placement::TwoWay {
                assert!(Sheet::with_messages(&plan).is_err(), "PyTorch wants each stage on one rank");
                continue;
            }
            let sheet = Sheet::with_messages(&plan).unwrap_or_else(|errors| panic!("{} {size:?}: {errors:?}", schedule.name));
            let read_back = read(&sheet.to_string());
            assert_eq!((read_back.plan(), &read_back), (plan.clone(), &sheet), "{} {size:?}", schedule.name);
            let sends = sheet.rows.iter().flatten().flatten().filter(|action| action.to_string().contains("SEND_")).count();
            // A send and its wait; none between two stages of one rank.
            let homes =
                |stage: u32| plan.rows.iter().position(|row| row.iter().any(|cell| cell.slots().any(|slot| slot.stage == stage)));
            let hops = (1..size.stages()).filter(|&stage| homes(stage) != homes(stage - 1)).count();
            assert_eq!(sends, 2 * 2 * hops * (micro_batches * size.segments) as usize, "{} {size:?}", schedule.name);
            lowered += 1;
        }
    }
    assert!(lowered > 60, "{lowered}");
}

#[test]
fn a_lowered_plan_is_what_pytorch_writes() {
    let plan = read("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n").plan();
    insta::assert_snapshot!(Sheet::with_messages(&plan).expect("a plan that PyTorch takes").to_string(), @r"
    0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1
    1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1
    ");
}

#[test]
fn a_dialect_is_told_by_its_letters() {
    let check = |text: &str, dialect: Dialect, printed: &str| {
        let sheet = read(text);
        assert_eq!((sheet.dialect, sheet.to_string().as_str()), (dialect, printed), "{text}");
    };
    check("0F0,0BW0", Dialect::OldLetters, "0F0,0B0\n");
    check("0F0,0B0,0W0\n", Dialect::OldLetters, "0F0,0I0,0W0\n");
    check("0F0,0F1,0BW0,0B1,0W1", Dialect::OldLetters, "0F0,0F1,0B0,0I1,0W1\n");
    check("0F0,0I0,0W0", Dialect::Letters, "0F0,0I0,0W0\n");
    check("0F0,0B0", Dialect::Letters, "0F0,0B0\n");
    check(MESSAGES, Dialect::MessagesAndWaits, &MESSAGES.replace('\r', ""));
    let unwaited = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";
    check(unwaited, Dialect::Messages, unwaited);
    let sharded = "0UNSHARD,0F0,(0F1;0B0)OVERLAP_F_B,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n";
    check(sharded, Dialect::Letters, sharded);
}

#[test]
fn what_other_tools_write_around_cells_is_accepted() {
    let expected = read("0F0,0B0\n1F0,1B0\n").plan();
    for text in ["0F0, ,0B0,\r\n1F0,1B0\r\n", ",,0F0,0B0\n,1F0,,1B0", "\"0F0\",\"0B0\"\n1F0,1B0", " 0F0 ,0B0\n1F0\t,1B0\n"] {
        assert_eq!(read(text).plan(), expected, "{text:?}");
    }
    assert!(
        Sheet::is_likely("0F0") && Sheet::is_likely(",,(0F1;") && Sheet::is_likely("\u{feff}0F0") && Sheet::is_likely("\"0F0\"")
    );
    assert!(
        !Sheet::is_likely("title = \"x\"") && !Sheet::is_likely("[model]") && !Sheet::is_likely("") && !Sheet::is_likely("7 = 1")
    );
}

/// Every kind of mistake: row, column, cell, and words of the problem.
#[test]
fn mistakes_are_told_with_their_place() {
    #[track_caller]
    fn check(text: &str, expected: &[(usize, usize, &str, &str)]) {
        let errors = Sheet::parse(text).expect_err(text);
        for (error, &(row, column, cell, words)) in errors.iter().zip(expected) {
            assert_eq!((error.row, error.column, error.cell.as_str()), (row, column, cell), "{text}: {errors:?}");
            assert!(error.problem.contains(words), "{text}: {errors:?}");
            assert!(!error.expected.is_empty());
        }
        assert_eq!(errors.len(), expected.len(), "{text}: {errors:?}");
    }
    check("0F0,1F0xyz", &[(1, 2, "1F0xyz", "no micro-batch")]);
    check("0F1.5,0F-1", &[(1, 1, "0F1.5", "no micro-batch"), (1, 2, "0F-1", "no micro-batch")]);
    check(
        "2f0,F0,-1F0",
        &[(1, 1, "2f0", "unknown letters"), (1, 2, "F0", "begin with a stage"), (1, 3, "-1F0", "begin with a stage")],
    );
    check("0F0,0B\n1F0,17", &[(1, 2, "0B", "no micro-batch"), (2, 2, "17", "no letters")]);
    check("0F0,0B", &[(1, 2, "0B", "no micro-batch")]);
    check("0F0,0X0,0FW1", &[(1, 2, "0X0", "unknown letters"), (1, 3, "0FW1", "unknown letters")]);
    check("0F99999999999", &[(1, 1, "0F99999999999", "too large")]);
    check("(0F7;7B3),0B0", &[(1, 1, "(0F7;7B3)", "opens a pair")]);
    check("()OVERLAP_F_B", &[(1, 1, "()OVERLAP_F_B", "not a pair")]);
    check("(0B0;0F1)OVERLAP_F_B", &[(1, 1, "(0B0;0F1)OVERLAP_F_B", "other passes")]);
    check("0UNSHARD0,0F0,0B0", &[(1, 1, "0UNSHARD0", "has a micro-batch")]);
    check("0F0,0BW0,0I1", &[(1, 3, "I", "row 1, column 2 has the letters BW")]);
    check("\u{feff}0F0,0B0", &[(1, 1, "U+FEFF", "byte-order mark")]);
    check("0F0,0\"B0", &[(1, 2, "0\"B0", "stray quote")]);
    check("\"0F0,0B0\"", &[(1, 1, "\"0F0", "stray quote"), (1, 2, "0B0\"", "stray quote")]);
    check("0F0,0B0\n\n1F0,1B0", &[(2, 1, "", "without any work")]);
    check("0F0,0B0\n1F0,1B0,0F0", &[(2, 3, "0F0", "second rank; row 1, column 1")]);
    check("0F0,0B0\n2F0,2B0", &[(2, 1, "2F0", "stage 1 runs nowhere")]);
    check("0F0,0B0,0F2,0B2", &[(1, 3, "0F2", "micro-batch 1 runs nowhere")]);
    check("0F0,0F0,0B0", &[(1, 2, "0F0", "second time; the first is in column 1")]);
    check("0F0,0B0,0B0", &[(1, 3, "0B0", "second time")]);
    check("0F0,0I0,0W0,0B0", &[(1, 4, "0B0", "backward a second time")]);
    check("0B0,0F0", &[(1, 1, "0B0", "before 0F0")]);
    check("0F0,0W0,0I0", &[(1, 2, "0W0", "before 0I0")]);
    check("0F0,0F1,0B0", &[(1, 2, "0F1", "never runs micro-batch 1's B")]);
    check("0F0,0I0\n", &[(1, 1, "0F0", "never runs micro-batch 0's W")]);
    check("0F0,0B0,0F1,0B1\n1F0,1B0", &[(2, 1, "1F0", "never runs micro-batch 1's F")]);
    check("0UNSHARD", &[(1, 1, "0UNSHARD", "computes nothing")]);
    check("", &[(1, 1, "", "without any work")]);
    let pair = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0";
    check(&pair.replace("0SEND_F0,", "0SEND_F0,,"), &[(1, 3, "", "bubble beside messages")]);
    check(&pair.replace(",1SEND_B0", ""), &[(2, 3, "1B0", "never sent")]);
    check(&pair.replace("0RECV_B0,", ""), &[(2, 4, "1SEND_B0", "never received")]);
    check(&pair.replace("0F0,0SEND_F0", "0SEND_F0,0F0"), &[(1, 1, "0SEND_F0", "before it is computed")]);
    check(&pair.replace("1RECV_F0,1F0", "1F0,1RECV_F0"), &[(2, 2, "1RECV_F0", "after it is needed")]);
    check(&pair.replace("0SEND_F0", "1SEND_F0"), &[(1, 2, "1SEND_F0", "no stage at its other end")]);
    check(&pair.replace("0RECV_B0", "0RECV_B0,0RECV_B0"), &[(1, 4, "0RECV_B0", "second time")]);
    check(&pair.replace("0SEND_F0", "0SEND_F0,0SEND_F5"), &[(1, 3, "0SEND_F5", "nobody runs")]);
    check(&MESSAGES.replace(",0WAIT_SEND_F1", ""), &[(1, 4, "0SEND_F1", "never waited for")]);
    check("0F0,0B0,0REDUCE_GRAD", &[(1, 3, "0REDUCE_GRAD", "never waited for")]);
    check("0F0,0B0,0WAIT_REDUCE_GRAD", &[(1, 3, "0WAIT_REDUCE_GRAD", "nobody reduces")]);
    check("0F0,0B0,1UNSHARD", &[(1, 3, "1UNSHARD", "without stage 1")]);
}

#[test]
fn a_million_bad_columns_are_refused_by_the_first_ones() {
    let text = vec!["0F0x"; 1_000_000].join(",");
    let errors = Sheet::parse(&text).expect_err("a million mistakes");
    assert_eq!((errors.len(), errors[49].column), (50, 50));
    let long = format!("0F{}", "9".repeat(100_000));
    assert!(Sheet::parse(&long).expect_err("a long cell")[0].cell.len() < 100);
}

fn cell() -> impl Strategy<Value = String> {
    (0..3_u32, 0..4_usize, 0..3_u32).prop_map(|(stage, pass, m)| Slot::new(stage, Pass::ALL[pass], m).to_string())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,80}") {
        let _ = Sheet::parse(&text);
    }

    #[test]
    fn any_cells_are_read_or_refused(rows in prop::collection::vec(prop::collection::vec(cell(), 0..9), 1..4)) {
        let text: String = rows.iter().map(|row| row.join(",") + "\n").collect();
        if let Ok(sheet) = Sheet::parse(&text) {
            let plan: Plan = sheet.plan();
            prop_assert_eq!(Sheet::parse(&plan.to_string()).map(|sheet| sheet.plan()), Ok(plan));
        }
    }
}
