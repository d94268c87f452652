//! A sheet: PyTorch's pipelining CSV with all its actions, as `torch.distributed.pipelining` loads and dumps it.
//!
//! A row is a rank, a cell an action: `2F0` (stage 2, forward, micro-batch 0), `3SEND_F1`, `0UNSHARD`, `(0F7;7B3)OVERLAP_F_B`. A plan is
//! the part of a sheet that computes. Reading is strict where PyTorch's own reader drops what it does not understand: nothing is guessed,
//! and every bad cell is told with its row, its column, and what was expected.

mod check;
mod lowered;
mod messages;
mod parse;

use std::fmt;

use super::plan::{Cell, Plan};

/// A sheet that is in order: stages and micro-batches are whole, and nothing runs before what it needs on its own rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// Per rank, its cells; `None` is a bubble that somebody drew, which means nothing.
    pub rows: Vec<Vec<Option<Action>>>,
    /// What it was written in; it is printed in the letters of today.
    pub dialect: Dialect,
}

/// What one cell does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Computes.
    Compute(Cell),
    /// One end of a message, or the wait for one.
    Message(End, Message),
    /// Gathers, frees or reduces what a sharded stage holds.
    Shard(ShardAction, u32),
}

/// What an action does about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Sends it.
    Send,
    /// Receives it.
    Recv,
    /// Waits until it is sent.
    WaitSend,
}

/// An activation or a gradient between two stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// An activation to the next stage; otherwise a gradient to the previous one.
    pub is_forward: bool,
    /// The stage of the rank where the action stands: a send names its sender, a receive its receiver.
    pub stage: u32,
    /// The micro-batch.
    pub micro_batch: u32,
}

/// What an action does about the parameters of a sharded stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardAction {
    /// Gathers its parameters.
    Unshard,
    /// Frees them.
    Reshard,
    /// Starts to reduce its gradients.
    ReduceGrad,
    /// Waits until they are reduced.
    WaitReduceGrad,
}

/// How PyTorch wrote sheets over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// 2024: B is the backward for the input alone, BW the whole.
    OldLetters,
    /// Since 2025: I and B. The sheet has no messages.
    Letters,
    /// 2025: messages whose sends nobody waits for.
    Messages,
    /// 2.15: every send has its wait.
    MessagesAndWaits,
}

/// What is wrong with a cell, or with the sheet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row}, column {column}: `{cell}` {problem}")]
pub struct SheetError {
    /// Row, from 1.
    pub row: usize,
    /// Column, from 1.
    pub column: usize,
    /// The cell as written, shortened.
    pub cell: String,
    /// What is wrong with it.
    pub problem: String,
    /// What was expected.
    pub expected: String,
}

/// The errors that are kept: whoever wrote a million bad cells learns enough from the first.
pub const MOST_ERRORS: usize = 50;

impl Sheet {
    /// Reads a sheet.
    ///
    /// # Errors
    /// The first [`MOST_ERRORS`] of the cells that are no actions; without any, of what is wrong with the whole.
    pub fn parse(text: &str) -> Result<Self, Vec<SheetError>> {
        let sheet = parse::parse(text)?;
        let errors = check::check(&sheet);
        if errors.is_empty() { Ok(sheet) } else { Err(errors) }
    }

    /// Whether `text` begins as a sheet does and a TOML file does not: with a stage and a letter.
    #[must_use]
    pub fn is_likely(text: &str) -> bool {
        let text = text.trim_start_matches(['\u{feff}', ' ', '\t', ',', '"', '(']);
        let letters = text.trim_start_matches(|c: char| c.is_ascii_digit());
        letters.len() < text.len() && letters.starts_with(|c: char| c.is_ascii_uppercase())
    }

    /// What it computes.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let cell = |action: &Option<Action>| match action {
            Some(Action::Compute(cell)) => Some(*cell),
            _ => None,
        };
        Plan { rows: self.rows.iter().map(|row| row.iter().filter_map(cell).collect()).collect() }
    }

    /// Whether it says where messages stand.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.rows.iter().flatten().any(|action| matches!(action, Some(Action::Message(..))))
    }
}

impl Message {
    /// The other end's view: the stage that receives what this one sends, or sends what it receives. `None` beyond the first stage.
    #[must_use]
    pub fn turned(self, end: End) -> Option<Self> {
        let goes_up = self.is_forward == (end != End::Recv);
        let stage = if goes_up { self.stage.checked_add(1)? } else { self.stage.checked_sub(1)? };
        Some(Self { stage, ..self })
    }
}

impl ShardAction {
    /// All with their names.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Unshard, "UNSHARD"),
        (Self::Reshard, "RESHARD"),
        (Self::ReduceGrad, "REDUCE_GRAD"),
        (Self::WaitReduceGrad, "WAIT_REDUCE_GRAD"),
    ];
}

impl End {
    /// All with the starts of their names.
    pub const ALL: [(Self, &'static str); 3] = [(Self::Send, "SEND_"), (Self::Recv, "RECV_"), (Self::WaitSend, "WAIT_SEND_")];
}

impl Dialect {
    /// When and how it was written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OldLetters => "PyTorch of 2024: B is the backward for the input, BW the whole",
            Self::Letters => "PyTorch since 2025: I is the backward for the input, B the whole",
            Self::Messages => "PyTorch of 2025, with messages",
            Self::MessagesAndWaits => "PyTorch 2.15, with messages and waits",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Compute(cell) => write!(f, "{cell}"),
            Self::Message(end, Message { is_forward, stage, micro_batch }) => {
                let letter = if is_forward { 'F' } else { 'B' };
                write!(f, "{stage}{}{letter}{micro_batch}", End::ALL[end as usize].1)
            }
            Self::Shard(action, stage) => write!(f, "{stage}{}", ShardAction::ALL[action as usize].1),
        }
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            for (column, action) in row.iter().enumerate() {
                f.write_str(if column == 0 { "" } else { "," })?;
                action.map_or(Ok(()), |action| write!(f, "{action}"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
