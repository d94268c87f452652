//! A comparison of two runs as a plain table.

use std::fmt::Write;

use crate::base::Bytes;
use crate::base::units::short_number;
use crate::observe::compare::{Comparison, Happened, Measure};

/// The table: numbers, words, the first event that differs.
#[must_use]
pub fn table(comparison: &Comparison) -> String {
    let [a, b] = &comparison.names;
    let mut rows: Vec<[String; 4]> = vec![[String::new(), "A".to_owned(), "B".to_owned(), "B-A".to_owned()]];
    rows.extend(comparison.measures.iter().map(|measure| {
        let cells = cells(measure);
        [measure.name.to_owned(), cells[0].clone(), cells[1].clone(), cells[2].clone()]
    }));
    rows.extend(comparison.words.iter().map(|words| [words.name.to_owned(), words.a.clone(), words.b.clone(), String::new()]));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = format!("A  {a}\nB  {b}\n\n");
    for row in &rows {
        let line = format!("{:<3$}  {:>4$}  {:>5$}", row[0], row[1], row[2], widths[0], widths[1], widths[2]);
        let line = format!("{line}  {:>1$}", row[3], widths[3]);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = write!(text, "\n{}\n", sentence(comparison));
    text
}

/// The cells of a number: of the first run, of the second, the change with its sign.
#[must_use]
pub fn cells(measure: &Measure) -> [String; 3] {
    let [unit_a, unit_b] = measure.units;
    let show = |value: Option<f64>, unit| value.map_or_else(|| "-".to_owned(), |value| shown(value, unit));
    let change = measure.change.map_or_else(String::new, |change| {
        let sign = if change < 0.0 {
            "-"
        } else if change > 0.0 {
            "+"
        } else {
            ""
        };
        let better = match measure.less_is_better {
            Some(less) if change != 0.0 => {
                if (change < 0.0) == less {
                    " better"
                } else {
                    " worse"
                }
            }
            _ => "",
        };
        format!("{sign}{}{better}", shown(change.abs(), unit_b))
    });
    [show(measure.a, unit_a), show(measure.b, unit_b), change]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are whole and not negative")]
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => Bytes(value as u64).to_string(),
        "slots" => format!("{}u", short_number(value)),
        "%" => format!("{} %", short_number(value)),
        "" if value.fract() != 0.0 => format!("{value:.5}"),
        "" => short_number(value),
        unit => format!("{} {unit}", short_number(value)),
    }
}

/// Where the two part.
#[must_use]
pub fn sentence(comparison: &Comparison) -> String {
    let ops = comparison.ops;
    let counts = format!(
        "{} ops at the same time, {} at another, {} only in A, {} only in B",
        ops.same, ops.moved, ops.only_a, ops.only_b
    );
    let Some(first) = &comparison.first_difference else {
        let what = if comparison.equal { "the runs are equal" } else { "every event is the same" };
        return format!("{what}: {counts}");
    };
    let side = |happened: &Option<Happened>| match happened {
        Some(Happened { rank, op, step, time }) => format!("r{rank} `{op}` at {} in step {step}", short_number(*time)),
        None => "nothing any more".to_owned(),
    };
    format!("first difference: event {}, A {}, B {}\n{counts}", first.event, side(&first.a), side(&first.b))
}
