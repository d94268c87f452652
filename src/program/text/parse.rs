//! Reading a program: cuts the text into sections, reads declarations, then ops, and puts the ops together.

use super::TextError;
use super::operations::{Line, Reader, id};
use super::sections::{SECTIONS, Section};
use super::words::{Problem, Words, whole};
use crate::base::{KernelId, OpId, Rank};
use crate::program::op::{OpKind, Origin, PassName, SkippedKind};
use crate::program::tables::{COMPUTE, Program, Setting};

/// Reads the text form of a program.
///
/// # Errors
/// All that is wrong with the text, line by line.
pub fn parse(text: &str) -> Result<Program, Vec<TextError>> {
    let mut errors = Vec::new();
    let blocks = Blocks::cut(text, &mut errors);
    let mut program = Program::new(blocks.ranks.len(), Setting { steps: 1, micro_batch_size: 1, ..Setting::default() });
    program.setting.micro_batches_per_step = 1;
    let is_there = |(section, block): (&Section, &Option<Block>)| block.as_ref().map(|_| section.name);
    let declared = SECTIONS.iter().zip(&blocks.declarations).filter_map(is_there).collect();
    declare(&mut program, &blocks.declarations, &mut errors);
    let mut reader = Reader::new(program, declared);
    let lines = operations(&mut reader, &blocks.ranks, &mut errors);
    if errors.is_empty() { Ok(assemble(reader.program, &lines)) } else { Err(sorted(errors)) }
}

/// Entries with the numbers of their lines.
type Block = Vec<(usize, Words)>;

/// The text, cut into sections.
struct Blocks {
    declarations: [Option<Block>; SECTIONS.len()],
    ranks: Vec<Block>,
}

/// Where entries go.
enum Open {
    /// Before any section, or behind an unknown header, about which enough was said.
    None {
        told: bool,
    },
    Declaration(usize),
    Rank,
}

impl Blocks {
    fn cut(text: &str, errors: &mut Vec<TextError>) -> Self {
        let mut blocks = Self { declarations: [const { None }; SECTIONS.len()], ranks: Vec::new() };
        let mut section = Open::None { told: false };
        let mut last = 0;
        for (number, line) in (1..).zip(text.lines()) {
            last = number;
            let words = match Words::cut(line) {
                Ok(words) if words.is_empty() => continue,
                Ok(words) => words,
                Err(problem) => {
                    errors.push(problem.at(number));
                    continue;
                }
            };
            if !line.starts_with(char::is_whitespace) {
                section = blocks.open(words).unwrap_or_else(|problem| {
                    errors.push(problem.at(number));
                    Open::None { told: true }
                });
                continue;
            }
            match &mut section {
                Open::None { told: true } => {}
                Open::None { told } => {
                    errors.push(Problem::new(line.trim(), "stands before any section").hint("begin with `rank 0`").at(number));
                    *told = true;
                }
                Open::Declaration(place) => blocks.declarations[*place].get_or_insert_default().push((number, words)),
                Open::Rank => blocks.ranks.last_mut().expect("opened by its header").push((number, words)),
            }
        }
        if blocks.ranks.is_empty() {
            errors.push(Problem::new("", "is the end of the text, and there is no rank").hint("write `rank 0`").at(last.max(1)));
        }
        blocks
    }

    /// Opens the section that a header names.
    fn open(&mut self, mut words: Words) -> Result<Open, Problem> {
        let names: Vec<&'static str> = SECTIONS.iter().map(|section| section.name).chain(["rank"]).collect();
        let name = words.one_of("section", &names)?;
        if name == "rank" {
            let wanted = self.ranks.len();
            let rank = words.expect("number of a rank", whole::<usize>)?;
            if rank != wanted {
                return Err(Problem::new(format!("rank {rank}"), format!("stands where rank {wanted} is expected")));
            }
            self.ranks.push(Vec::new());
            return words.end().map(|()| Open::Rank);
        }
        let place = SECTIONS.iter().position(|section| section.name == name).expect("one of their names");
        if self.declarations[place].is_some() {
            return Err(Problem::new(name, "is the name of two sections"));
        }
        self.declarations[place] = Some(Vec::new());
        words.end().map(|()| Open::Declaration(place))
    }
}

fn declare(program: &mut Program, declarations: &[Option<Block>], errors: &mut Vec<TextError>) {
    for (section, block) in SECTIONS.iter().zip(declarations) {
        let Some(block) = block else { continue };
        let implied = if section.name == "streams" { std::mem::take(&mut program.streams) } else { Vec::new() };
        for (number, words) in block {
            let mut words = words.clone();
            let result = (section.read)(program, &mut words).and_then(|()| words.end());
            errors.extend(result.err().map(|problem| problem.at(*number)));
        }
        if section.name == "streams" && program.streams.is_empty() {
            program.streams = implied;
        }
    }
}

/// Reads the ops of all ranks, and gives ids to those that have none.
fn operations(reader: &mut Reader, ranks: &[Block], errors: &mut Vec<TextError>) -> Vec<Line> {
    let most =
        u32::try_from(ranks.iter().map(Vec::len).sum::<usize>()).unwrap_or(u32::MAX).saturating_mul(8).saturating_add(4096);
    let mut lines = Vec::new();
    let mut taken = vec![false; most as usize];
    for (rank, block) in ranks.iter().enumerate() {
        let mut step = 0;
        for (number, words) in block {
            let mut words = words.clone();
            let id = match id(&mut words, most) {
                Ok(Some(id)) if std::mem::replace(&mut taken[id as usize], true) => {
                    errors.push(Problem::new(OpId(id).to_string(), "is the id of two ops").at(*number));
                    continue;
                }
                Ok(id) => id,
                Err(problem) => {
                    errors.push(problem.at(*number));
                    continue;
                }
            };
            let place = (Rank::new(rank), *number, id);
            match reader.line(place, &mut step, &mut words) {
                Ok(line) => lines.extend(line),
                Err(problem) => errors.push(problem.at(*number)),
            }
        }
    }
    check_waits(&lines, &taken, errors);
    let mut free = (0..most).filter(|&id| !taken[id as usize]);
    lines.iter_mut().filter(|line| line.id.is_none()).for_each(|line| line.id = free.next());
    lines
}

fn check_waits(lines: &[Line], taken: &[bool], errors: &mut Vec<TextError>) {
    let is_known = |on: &u32| taken.get(*on as usize).is_some_and(|taken| *taken);
    for line in lines {
        for &on in line.waits.iter().filter(|on| !is_known(on)) {
            errors.push(Problem::new(OpId(on).to_string(), "is waited for, but no line has this id").at(line.number));
        }
    }
}

/// Adds the ops in the order of their ids; ids that no line has become ops that never run.
fn assemble(mut program: Program, lines: &[Line]) -> Program {
    let mut by_id: Vec<&Line> = lines.iter().collect();
    by_id.sort_by_key(|line| line.id);
    for line in by_id {
        while Some(u32::try_from(program.ops()).expect("fewer than 2^32 ops")) < line.id {
            let nothing = OpKind::Skipped(SkippedKind::Run(KernelId(0)));
            let origin = Origin { slot: None, step: 0, pass: PassName::Hand };
            program.add((Rank(0), COMPUTE), nothing, (&[], &[]), origin);
        }
        let id = program.add((line.rank, line.stream), line.kind, (&line.reads, &line.writes), line.origin);
        // The lists are told latest first.
        line.waits.iter().rev().for_each(|&on| program.wait(id, OpId(on)));
        line.frees.iter().rev().for_each(|&buffer| program.free(id, buffer));
    }
    for line in lines {
        program.order[line.rank.index()].push(OpId(line.id.expect("every line has been given an id")));
    }
    program
}

fn sorted(mut errors: Vec<TextError>) -> Vec<TextError> {
    errors.sort_by_key(|error| error.line);
    errors
}
