//! The pages of the book that are made from tables: `book/src` holds what these functions give, and a test that it still does.

use std::fmt::Write;

use crate::base::PointToPoint;
use crate::lab::LabError;
use crate::lab::semantics::{self, Cause, MICRO_BATCHES, RANKS};
use crate::observe::export::text::picture;
use crate::observe::{Lanes, Run};
use crate::schedule::{SCHEDULES, Schedule};

/// A page: its file's name without the ending, and what makes its text.
pub type Page = (&'static str, fn() -> Result<String, LabError>);

/// All pages that are made.
pub static PAGES: [Page; 2] = [("schedules", schedules), ("deadlocks", deadlocks)];

/// Columns of a picture.
const WIDTH: usize = 96;

/// Every schedule with what it does, its closed forms, its picture, and where it is from.
fn schedules() -> Result<String, LabError> {
    let mut text = "# Schedules\n\n\
        Each schedule is a pure function to a plan: which rank computes which stage of which micro-batch, in which order. Here p is the \
        number of ranks, v of stages on each, m of micro-batches, k of segments of a sequence; F, I and W are the times of a stage's \
        passes, B = I + W, t = F + B. The forms hold for free messages and equal stages.\n\n\
        | name | idle time of a rank | a step | idle / all time | idle / work |\n|---|---|---|---|---|\n"
        .to_owned();
    for Schedule { name, theory, .. } in SCHEDULES {
        let forms = [theory.idle, theory.makespan, theory.fraction, theory.ratio];
        let _ = writeln!(text, "| [`{name}`](#{name}) | {} |", forms.join(" | "));
    }
    let _ = write!(
        text,
        "\nThe pictures show a step of {RANKS} ranks and {MICRO_BATCHES} micro-batches as it ran, with F = I = W = 1 and a whole slot for \
         every stage of a rank.\n"
    );
    for schedule in SCHEDULES {
        let Schedule { name, title, meaning, source, .. } = schedule;
        let _ = write!(text, "\n## `{name}`\n\n**{title}**: {meaning}.\n\nFrom: {source}.\n\n```text\n");
        if let Some((program, trace)) = semantics::run(schedule, PointToPoint::EdgeFifo)? {
            let run = Run::new(&program, &trace);
            text.push_str(picture(&run, &Lanes::new(&run), WIDTH).trim_end());
        }
        text.push_str("\n```\n");
    }
    Ok(text)
}

/// Which schedule deadlocks under which semantics, and why.
fn deadlocks() -> Result<String, LabError> {
    let table = semantics::table()?;
    let mut text = "# Which schedules deadlock\n\n\
        Whether a schedule deadlocks is undefined until somebody says who waits for whom when two stages exchange a message:\n\n\
        | `p2p` | who waits for what |\n|---|---|\n\
        | `buffered` | a send ends at once; a receive waits for its send |\n\
        | `edge-fifo` | a queue for each direction between two ranks; both ends meet at its head |\n\
        | `pair-fifo` | a queue for each two ranks, both directions in the order of the program |\n\
        | `rank-fifo` | a queue for all messages of a rank |\n\
        | `blocking` | a send holds its rank until the other one stands at the receive |\n\n"
        .to_owned();
    let _ = write!(
        text,
        "Every schedule was run on {RANKS} ranks with {MICRO_BATCHES} micro-batches; sends stand behind the slot that makes their value, \
         receives before the slot that needs it.\n\n| schedule |"
    );
    PointToPoint::NAMES.iter().for_each(|name| _ = write!(text, " `{name}` |"));
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(PointToPoint::NAMES.len()));
    for row in &table {
        let _ = write!(text, "| `{}` |", row.schedule);
        row.completes.iter().for_each(|&completes| text.push_str(if completes { " runs |" } else { " **deadlock** |" }));
        text.push('\n');
    }
    text.push_str("\n## Why, where sends block\n\nA circle: each rank stands at a message whose other end the next one has not come to.\n\n");
    for cause in Cause::ALL {
        let of_cause: Vec<_> = table.iter().filter(|row| row.cause == Some(cause)).collect();
        if !of_cause.is_empty() {
            let _ = write!(text, "{}:\n\n| schedule | the circle |\n|---|---|\n", cause.sentence());
            of_cause.iter().for_each(|row| _ = writeln!(text, "| `{}` | {} |", row.schedule, row.why));
            text.push('\n');
        }
    }
    let free: Vec<String> = table.iter().filter(|row| row.cause.is_none()).map(|row| format!("`{}`", row.schedule)).collect();
    let _ = writeln!(text, "No circle: {}. There messages go one way only at any time.", free.join(", "));
    Ok(text)
}
