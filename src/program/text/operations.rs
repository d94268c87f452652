//! Reading the line of an op.

use super::lookup::Lookup;
use super::sections::{collective_kind, kernel, known_rank};
use super::words::{Problem, Read, Words, numbered, rank, whole};
use crate::base::{BufferId, Bytes, ChannelId, CollectiveId, Dtype, KernelId, Rank, StreamId};
use crate::program::name::Name;
use crate::program::op::{KernelCost, OpKind, Origin, PassName};
use crate::program::plan::{Pass, Slot};
use crate::program::tables::{Channel, Collective, CollectiveKind, Group, Layout, Program};

/// An op as written.
pub(super) struct Line {
    pub number: usize,
    pub id: Option<u32>,
    pub rank: Rank,
    pub stream: StreamId,
    pub kind: OpKind,
    pub reads: Vec<BufferId>,
    pub writes: Vec<BufferId>,
    pub origin: Origin,
    pub waits: Vec<u32>,
    pub frees: Vec<BufferId>,
}

/// What the lines of ops name, and the program that they are read into.
pub(super) struct Reader {
    pub program: Program,
    lookup: Lookup,
    /// The sections that the text has; what the others would declare, the ops declare.
    declared: Vec<&'static str>,
}

/// What an op does, and its operands.
type Action = (OpKind, Vec<BufferId>, Vec<BufferId>);

impl Reader {
    pub(super) fn new(program: Program, declared: Vec<&'static str>) -> Self {
        let lookup = Lookup::new(&program);
        Self { program, lookup, declared }
    }

    /// Whether ops declare what `section` would.
    fn is_open(&self, section: &str) -> bool {
        !self.declared.contains(&section)
    }

    /// Reads the rest of a line: an op, or `step` and a number, which is put into `step`.
    pub(super) fn line(
        &mut self,
        (rank, number, id): (Rank, usize, Option<u32>),
        step: &mut u32,
        words: &mut Words,
    ) -> Read<Option<Line>> {
        if id.is_none() && words.eat("step") {
            *step = words.expect("number of a step", whole)?;
            return words.end().map(|()| None);
        }
        let stream = self.stream(words)?;
        let is_skipped = words.eat("skipped");
        let slot = words.take(slot);
        let is_skipped = is_skipped || words.eat("skipped");
        let mut origin = Origin { slot, step: *step, pass: PassName::Hand };
        let (kind, reads, writes) = self.action(rank, origin.step, words)?;
        let kind = if is_skipped { kind.skipped() } else { kind };
        let mut waits = Vec::new();
        if words.eat("after") {
            waits.push(words.expect("id of an op to wait for", numbered("%"))?);
            waits.extend(std::iter::from_fn(|| words.take(numbered("%"))));
        }
        let frees = if words.eat("free") { self.operands(rank, words)? } else { Vec::new() };
        if words.eat("by") {
            let name = words.one_of("pass", &PassName::ALL.map(|(_, name)| name))?;
            origin.pass = PassName::ALL.into_iter().find(|(_, known)| *known == name).expect("one of their names").0;
        }
        words.end().map_err(|problem| problem.hint("an op ends with `after`, `free`, `by`, in this order"))?;
        Ok(Some(Line { number, id, rank, stream, kind, reads, writes, origin, waits, frees }))
    }

    fn stream(&mut self, words: &mut Words) -> Read<StreamId> {
        let name = words.any("stream")?;
        let known = self.program.streams.iter().position(|stream| stream.name == name).map(StreamId::new);
        match known {
            Some(known) => Ok(known),
            None if self.is_open("streams") => Ok(self.program.communication_stream(&name)),
            None => Err(Problem::unknown("stream", &name, self.program.streams.iter().map(|stream| stream.name.as_str()))),
        }
    }

    fn action(&mut self, rank: Rank, step: u32, words: &mut Words) -> Read<Action> {
        if words.eat("send") {
            let buffers = self.payload(rank, words)?;
            words.expect("`->` and the rank that receives", |text| (text == "->").then_some(()))?;
            let to = known_rank(&self.program, words)?;
            let channel = self.channel(words, (rank, to), |channel| channel.to == to)?;
            return Ok((OpKind::Send(channel), buffers, Vec::new()));
        }
        if let Some(reduces) = words.take(|text| ["recv", "recv-reduce"].iter().position(|verb| *verb == text)) {
            let buffers = self.payload(rank, words)?;
            words.expect("`<-` and the rank that sends", |text| (text == "<-").then_some(()))?;
            let from = known_rank(&self.program, words)?;
            let channel = self.channel(words, (from, rank), |channel| channel.from == from)?;
            return Ok(match reduces {
                0 => (OpKind::Recv(channel), Vec::new(), buffers),
                _ => (OpKind::RecvReduce(channel), buffers.clone(), buffers),
            });
        }
        match words.take(collective_kind) {
            Some(kind) => self.collective(rank, step, kind, words),
            None => self.run(rank, words),
        }
    }

    /// The channel that is named, or the first one between `ends`.
    fn channel(&mut self, words: &mut Words, ends: (Rank, Rank), fits: impl Fn(Channel) -> bool) -> Read<ChannelId> {
        if let Some(id) = words.take(numbered("c")).map(ChannelId) {
            let problem = || Problem::new(id.to_string(), "is no channel to or from that rank");
            return self.program.channels.get(id.index()).filter(|channel| fits(**channel)).map(|_| id).ok_or_else(problem);
        }
        match self.lookup.channels.get(&ends) {
            Some(&channel) => Ok(channel),
            None if self.is_open("channels") => {
                let channel = self.program.channel(Channel { from: ends.0, to: ends.1, buffered: false });
                self.lookup.channels.insert(ends, channel);
                Ok(channel)
            }
            None => Err(Problem::new(format!("{} -> {}", ends.0, ends.1), "is no channel").hint("declare it under `channels`")),
        }
    }

    fn collective(&mut self, rank: Rank, step: u32, kind: CollectiveKind, words: &mut Words) -> Read<Action> {
        let label = words.any("label of the collective")?;
        let id = words.take(numbered("x")).map(CollectiveId);
        let reads = self.operands(rank, words)?;
        let writes = if words.eat("->") { self.operands(rank, words)? } else { reads.clone() };
        let known = match id {
            Some(id) => self.program.collectives.get(id.index()).filter(|collective| collective.kind == kind).map(|_| id),
            None => self.lookup.collective(&self.program, rank, (kind, &label, step)),
        };
        let id = match known {
            Some(id) => id,
            None if self.is_open("collectives") && id.is_none() => {
                let ranks = (0..self.program.ranks()).map(Rank::new).collect();
                let group = self.program.group(Group::of("world", ranks));
                let payload = if kind == CollectiveKind::AllGather { &writes } else { &reads };
                let bytes = payload.iter().map(|&buffer| self.program.bytes(buffer)).fold(Bytes::ZERO, |sum, bytes| sum + bytes);
                let (dtype, padding) = (self.program.setting.dtype, Bytes::ZERO);
                let id = self.program.collective(Collective { group, kind, label, step, bytes, dtype, padding, shards: 1 });
                self.lookup.add_collective(&self.program, id);
                id
            }
            None => {
                let text = id.map_or_else(|| format!("{} {label}", kind.name()), |id| id.to_string());
                return Err(Problem::new(text, format!("is no collective of {rank} in step {step}")));
            }
        };
        Ok((OpKind::Collective(id), reads, writes))
    }

    fn run(&mut self, rank: Rank, words: &mut Words) -> Read<Action> {
        let what = "nothing that an op does";
        let kernel = kernel(words).map_err(|problem| Problem { wrong: problem.wrong.replace("no verb", what), ..problem })?;
        let named = words.take(numbered("k")).map(KernelId);
        let id = match named {
            Some(id) => self.program.kernels.get(id.index()).filter(|known| known.kernel == kernel).map(|_| id),
            None => self.lookup.kernels.get(&kernel).copied(),
        };
        let id = match id {
            Some(id) => id,
            None if self.is_open("kernels") && named.is_none() => {
                let id = self.program.kernel(KernelCost::free(kernel));
                self.lookup.kernels.insert(kernel, id);
                id
            }
            None => {
                return Err(Problem::new(kernel.to_string(), "is no kernel of this program").hint("declare it under `kernels`"));
            }
        };
        let reads = self.operands(rank, words)?;
        let writes = if words.eat("->") { self.operands(rank, words)? } else { Vec::new() };
        Ok((OpKind::Run(id), reads, writes))
    }

    /// Reads buffers up to a word that structures the line.
    fn operands(&mut self, rank: Rank, words: &mut Words) -> Read<Vec<BufferId>> {
        let mut buffers = Vec::new();
        while words.peek().is_some_and(|word| !["->", "<-", "after", "free", "by"].contains(&word)) {
            let range = words.take(|text| super::range(text).filter(|(first, last)| first != last));
            let Some((first, last)) = range else {
                buffers.push(self.operand(rank, words)?);
                continue;
            };
            let mut name = Some(first);
            while let Some(this) = name {
                buffers.push(self.named(rank, this, false)?);
                name = this.next().filter(|_| this != last);
            }
        }
        Ok(buffers)
    }

    /// Reads what a message carries: at least one buffer.
    fn payload(&mut self, rank: Rank, words: &mut Words) -> Read<Vec<BufferId>> {
        match words.peek() {
            None | Some("->" | "<-" | "after" | "free" | "by") => Ok(vec![self.operand(rank, words)?]),
            Some(_) => self.operands(rank, words),
        }
    }

    /// Reads one buffer: `x3.0`, `x3.0@r1`, or `b12`.
    fn operand(&mut self, own: Rank, words: &mut Words) -> Read<BufferId> {
        if let Some(id) = words.take(numbered("b")).map(BufferId) {
            let problem = || Problem::new(id.to_string(), "is no buffer of this program");
            return self.program.buffers.get(id.index()).map(|_| id).ok_or_else(problem);
        }
        let hint = |problem: Problem| problem.hint("buffers are told as x3.0, x3.0@r1, p3..p9, or b12");
        let (name, of) = words.expect("buffer", place).map_err(hint)?;
        self.named(of.unwrap_or(own), name, of.is_none())
    }

    /// The buffer of this name; it is made if buffers are left to the ops, and `may_be_new`.
    fn named(&mut self, rank: Rank, name: Name, may_be_new: bool) -> Read<BufferId> {
        match self.lookup.buffers.get(&(rank, name)) {
            Some(&buffer) => Ok(buffer),
            None if self.is_open("buffers") && may_be_new => {
                let layout = self.program.layout(Layout::tensor(Dtype::F32, &[]));
                let buffer = self.program.buffer(rank, name, name.usual_role(), layout);
                self.lookup.buffers.insert((rank, name), buffer);
                Ok(buffer)
            }
            None => Err(Problem::new(name.to_string(), format!("is no buffer of {rank}")).hint("declare it under `buffers`")),
        }
    }
}

/// Reads the id that a line may begin with; it must be below `most`.
pub(super) fn id(words: &mut Words, most: u32) -> Read<Option<u32>> {
    let Some(text) = words.take(|text| text.starts_with('%').then(|| text.to_owned())) else { return Ok(None) };
    let id: u32 = numbered("%")(&text).ok_or_else(|| Problem::new(&text, "is no id of an op").hint("ids are %0, %1, ..."))?;
    if id < most {
        return Ok(Some(id));
    }
    Err(Problem::new(text, format!("is too large for so few ops: the largest id is %{}", most - 1)))
}

/// Reads a name, and the rank of a buffer that is not the op's own.
fn place(text: &str) -> Option<(Name, Option<Rank>)> {
    match text.split_once('@') {
        Some((name, of)) => Some((Name::parse(name)?, Some(rank(of)?))),
        None => Some((Name::parse(text)?, None)),
    }
}

/// Reads a slot, such as `2F0`.
fn slot(text: &str) -> Option<Slot> {
    let letter = text.find(|c: char| !c.is_ascii_digit())?;
    let (stage, rest) = text.split_at(letter);
    let pass = Pass::ALL.into_iter().find(|pass| rest.starts_with(pass.letter()))?;
    Some(Slot::new(whole(stage)?, pass, whole(&rest[1..])?))
}
