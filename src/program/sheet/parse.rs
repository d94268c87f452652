//! Reading a sheet: rows to cells, cells to words, words to actions in the letters of today.

use super::{Action, Dialect, End, MOST_ERRORS, Message, ShardAction, Sheet, SheetError};
use crate::base::words::shortened;
use crate::program::plan::{Cell, Pass, Slot};

/// Reads the cells of a sheet.
pub(super) fn parse(text: &str) -> Result<Sheet, Vec<SheetError>> {
    let mut reader = Reader::default();
    if text.starts_with('\u{feff}') {
        reader.refuse((0, 0), "U+FEFF", "is a byte-order mark, which PyTorch's reader does not take", "UTF-8 without one");
    }
    let text = text.trim_start_matches('\u{feff}');
    let rows: Vec<Vec<Option<Raw>>> =
        text.strip_suffix('\n').unwrap_or(text).split('\n').enumerate().map(|(row, line)| reader.row(row, line)).collect();
    let is_old = reader.is_old(&rows);
    let mut sheet = Sheet { rows: Vec::with_capacity(rows.len()), dialect: Dialect::Letters };
    for (row, cells) in rows.iter().enumerate() {
        let action =
            |(column, raw): (usize, &Option<Raw>)| raw.as_ref().and_then(|raw| reader.action((row, column), raw, is_old));
        sheet.rows.push(cells.iter().enumerate().map(action).collect());
    }
    sheet.dialect = dialect(&sheet, is_old);
    reader.errors.sort_by_key(|error| (error.row, error.column));
    if reader.errors.is_empty() { Ok(sheet) } else { Err(reader.errors) }
}

fn dialect(sheet: &Sheet, is_old: bool) -> Dialect {
    let is_wait = |action: &Option<Action>| matches!(action, Some(Action::Message(End::WaitSend, _)));
    match sheet.has_messages() {
        _ if is_old => Dialect::OldLetters,
        false => Dialect::Letters,
        true if sheet.rows.iter().flatten().any(is_wait) => Dialect::MessagesAndWaits,
        true => Dialect::Messages,
    }
}

/// A cell as written.
enum Raw {
    One(Word),
    Pair(Word, Word),
}

/// Stage, letters, micro-batch.
#[derive(Clone, Copy)]
struct Word {
    stage: u32,
    /// Place in [`KINDS`].
    kind: usize,
    micro_batch: Option<u32>,
}

/// What letters mean.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    F,
    B,
    I,
    W,
    /// The whole backward, in old letters.
    Bw,
    Message(End, bool),
    Shard(ShardAction),
}

const KINDS: [(&str, Kind); 15] = [
    ("F", Kind::F),
    ("B", Kind::B),
    ("I", Kind::I),
    ("W", Kind::W),
    ("BW", Kind::Bw),
    ("SEND_F", Kind::Message(End::Send, true)),
    ("SEND_B", Kind::Message(End::Send, false)),
    ("RECV_F", Kind::Message(End::Recv, true)),
    ("RECV_B", Kind::Message(End::Recv, false)),
    ("WAIT_SEND_F", Kind::Message(End::WaitSend, true)),
    ("WAIT_SEND_B", Kind::Message(End::WaitSend, false)),
    ("UNSHARD", Kind::Shard(ShardAction::Unshard)),
    ("RESHARD", Kind::Shard(ShardAction::Reshard)),
    ("REDUCE_GRAD", Kind::Shard(ShardAction::ReduceGrad)),
    ("WAIT_REDUCE_GRAD", Kind::Shard(ShardAction::WaitReduceGrad)),
];

/// What is wrong with a cell, and what was expected.
type Wrong = (&'static str, &'static str);

const CELL: &str = "stage, letters, micro-batch, as in 2F0";
const PAIR: &str = "a forward and a whole backward, as in (0F7;7B3)OVERLAP_F_B";

/// Row and column, from 0.
type Place = (usize, usize);

#[derive(Default)]
struct Reader {
    errors: Vec<SheetError>,
}

impl Reader {
    fn refuse(&mut self, (row, column): Place, cell: &str, problem: &str, expected: &str) {
        if self.errors.len() < MOST_ERRORS {
            let (cell, problem, expected) = (shortened(cell), problem.to_owned(), expected.to_owned());
            self.errors.push(SheetError { row: row + 1, column: column + 1, cell, problem, expected });
        }
    }

    fn row(&mut self, row: usize, line: &str) -> Vec<Option<Raw>> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let cells: Vec<Option<Raw>> =
            line.split(',').enumerate().map(|(column, cell)| self.cell((row, column), cell.trim())).collect();
        if line.split(',').all(|cell| cell.trim().is_empty()) {
            self.refuse((row, 0), "", "is a rank without any work", "a row for each rank, and none between");
        }
        cells
    }

    fn cell(&mut self, place: Place, cell: &str) -> Option<Raw> {
        let unquoted = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')).unwrap_or(cell);
        if unquoted.is_empty() {
            return None;
        }
        let raw = if unquoted.contains('"') { Err(("has a stray quote", CELL)) } else { raw(unquoted.trim()) };
        raw.map_err(|(problem, expected)| self.refuse(place, cell, problem, expected)).ok()
    }

    /// Whether the letters are old ones; a sheet that has both is refused.
    fn is_old(&mut self, rows: &[Vec<Option<Raw>>]) -> bool {
        let first = |kind: Kind| {
            let place = |(row, cells): (usize, &Vec<Option<Raw>>)| {
                let is_kind = |raw: &Option<Raw>| raw.as_ref().is_some_and(|raw| raw.words().any(|word| word.is(kind)));
                cells.iter().position(is_kind).map(|column| (row, column))
            };
            rows.iter().enumerate().find_map(place)
        };
        let (whole, input) = (first(Kind::Bw), first(Kind::I));
        if let (Some((row, column)), Some(place)) = (whole, input) {
            let problem = format!(
                "is a letter of 2025, and row {}, column {} has the letters BW of 2024: what B means is open",
                row + 1,
                column + 1
            );
            self.refuse(place, "I", &problem, "I and B (since 2025), or B and BW (2024), all through");
        }
        // Without either, W beside B tells: a whole backward leaves no weights for later.
        whole.is_some() || (input.is_none() && first(Kind::W).is_some() && first(Kind::B).is_some())
    }

    fn action(&mut self, place: Place, raw: &Raw, is_old: bool) -> Option<Action> {
        let action = match raw {
            Raw::One(word) => word.action(is_old),
            Raw::Pair(forward, backward) => pair(forward, backward, is_old),
        };
        action.map_err(|(problem, expected)| self.refuse(place, &raw.to_string(), problem, expected)).ok()
    }
}

fn raw(cell: &str) -> Result<Raw, Wrong> {
    let Some(pair) = cell.strip_prefix('(') else { return word(cell).map(Raw::One) };
    let pair = pair.strip_suffix(")OVERLAP_F_B").ok_or(("opens a pair and does not end as one", PAIR))?;
    let (forward, backward) = pair.split_once(';').ok_or(("is not a pair", PAIR))?;
    Ok(Raw::Pair(word(forward.trim())?, word(backward.trim())?))
}

fn word(cell: &str) -> Result<Word, Wrong> {
    const LETTERS: &str = "F, I, W, B, SEND_F, SEND_B, RECV_F, RECV_B, WAIT_SEND_F, WAIT_SEND_B, UNSHARD, RESHARD, REDUCE_GRAD, \
                           WAIT_REDUCE_GRAD; BW in sheets of 2024";
    let digits = cell.find(|c: char| !c.is_ascii_digit()).ok_or(("has no letters", CELL))?;
    let (stage, rest) = cell.split_at(digits);
    let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap_or(rest.len());
    let (letters, micro_batch) = rest.split_at(end);
    let stage = if stage.is_empty() { Err(("does not begin with a stage", CELL)) } else { number(stage) }?;
    let kind = KINDS.iter().position(|(name, _)| *name == letters).ok_or(("has unknown letters", LETTERS))?;
    let micro_batch = if micro_batch.is_empty() { None } else { Some(number(micro_batch)?) };
    Ok(Word { stage, kind, micro_batch })
}

/// Digits alone, without a sign.
fn number(text: &str) -> Result<u32, Wrong> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_err(|_| ("has a number that is too large", "numbers below 2^32"))
    } else {
        Err(("has something behind its letters that is no micro-batch", CELL))
    }
}

fn pair(forward: &Word, backward: &Word, is_old: bool) -> Result<Action, Wrong> {
    match (forward.action(is_old)?, backward.action(is_old)?) {
        (Action::Compute(Cell::One(forward)), Action::Compute(Cell::One(backward)))
            if (forward.pass, backward.pass) == (Pass::F, Pass::B) =>
        {
            Ok(Action::Compute(Cell::Overlap(forward, backward)))
        }
        _ => Err(("overlaps other passes", PAIR)),
    }
}

impl Word {
    fn is(&self, kind: Kind) -> bool {
        KINDS[self.kind].1 == kind
    }

    fn action(&self, is_old: bool) -> Result<Action, Wrong> {
        let Self { stage, micro_batch, .. } = *self;
        if let Kind::Shard(action) = KINDS[self.kind].1 {
            let none = micro_batch.is_none();
            return none.then_some(Action::Shard(action, stage)).ok_or(("has a micro-batch", "the whole stage, as in 0UNSHARD"));
        }
        let micro_batch = micro_batch.ok_or(("has no micro-batch", CELL))?;
        let pass = match KINDS[self.kind].1 {
            Kind::F => Pass::F,
            Kind::W => Pass::W,
            Kind::B if is_old => Pass::I,
            Kind::B | Kind::Bw => Pass::B,
            Kind::Message(end, is_forward) => return Ok(Action::Message(end, Message { is_forward, stage, micro_batch })),
            Kind::I | Kind::Shard(_) => Pass::I,
        };
        Ok(Action::Compute(Cell::One(Slot { stage, pass, micro_batch })))
    }
}

impl Raw {
    fn words(&self) -> impl Iterator<Item = Word> {
        let (first, second) = match *self {
            Self::One(word) => (word, None),
            Self::Pair(first, second) => (first, Some(second)),
        };
        std::iter::once(first).chain(second)
    }
}

impl std::fmt::Display for Raw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |word: &Word| {
            format!("{}{}{}", word.stage, KINDS[word.kind].0, word.micro_batch.map_or_else(String::new, |m| m.to_string()))
        };
        match self {
            Self::One(word) => f.write_str(&text(word)),
            Self::Pair(first, second) => write!(f, "({};{})OVERLAP_F_B", text(first), text(second)),
        }
    }
}
