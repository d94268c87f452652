//! The declarative part: a table of sections, each with how it is printed and how one of its lines is read.

use std::fmt::{self, Formatter, Write};

use super::fields::{
    self, ATTENTION, COLLECTIVE, EXPERTS, KERNEL, MIXTURE, MODEL, NO_ATTENTION, NO_EXPERTS, NO_MIXTURE, NO_MODEL, OPTIMIZER,
    SETTING,
};
use super::shapes;
use super::words::{Problem, Read, Words, numbered, rank, whole, word};
use crate::base::model::{Model, Parameter, Part};
use crate::base::module::Module;
use crate::base::split::Slice;
use crate::base::{Bytes, Dtype, GroupId, LayoutId, ParameterId, Rank};
use crate::program::name::Name;
use crate::program::op::{Buffer, Kernel, KernelCost, Role};
use crate::program::tables::{Channel, Collective, CollectiveKind, Fold, Group, Program, Stream, StreamKind, Unit};

/// A section of declarations.
pub(super) struct Section {
    pub name: &'static str,
    pub print: fn(&Program, &mut Formatter<'_>) -> fmt::Result,
    pub read: fn(&mut Program, &mut Words) -> Read<()>,
}

/// All sections, in the order of the text; each may name what stands in those before it.
pub(super) const SECTIONS: [Section; 10] = [
    Section { name: "setting", print: print_setting, read: read_setting },
    Section { name: "streams", print: print_streams, read: read_stream },
    Section { name: "channels", print: print_channels, read: read_channel },
    Section { name: "groups", print: print_groups, read: read_group },
    Section { name: "collectives", print: print_collectives, read: read_collective },
    Section { name: "kernels", print: print_kernels, read: read_kernel },
    Section { name: "layouts", print: print_layouts, read: read_layout },
    Section { name: "parameters", print: print_parameters, read: read_parameter },
    Section { name: "units", print: print_units, read: read_unit },
    Section { name: "buffers", print: print_buffers, read: read_buffers },
];

fn print_setting(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    write!(f, "  run")?;
    fields::print(f, &program.setting, SETTING)?;
    write!(f, "\n  optimizer")?;
    fields::print(f, &program.setting.optimizer, OPTIMIZER)?;
    if let Some(model) = &program.setting.model {
        write!(f, "\n  model")?;
        fields::print(f, model, MODEL)?;
        if let Some(experts) = &model.experts {
            write!(f, "\n  mixture")?;
            fields::print(f, experts, MIXTURE)?;
        }
    }
    if let Some(attention) = &program.setting.attention {
        write!(f, "\n  attention")?;
        fields::print(f, attention, ATTENTION)?;
    }
    if let Some(experts) = &program.setting.experts {
        write!(f, "\n  experts")?;
        fields::print(f, experts, EXPERTS)?;
    }
    writeln!(f)
}

fn read_setting(program: &mut Program, words: &mut Words) -> Read<()> {
    let ranks = program.ranks();
    let setting = &mut program.setting;
    match words.one_of("setting", &["run", "optimizer", "model", "mixture", "attention", "experts"])? {
        "run" => {
            fields::read(words, setting, SETTING, false)?;
            match ranks.checked_mul(setting.folding.size()) {
                Some(all) if all <= fields::MOST_RANKS => Ok(()),
                _ => Err(Problem::new("folded", format!("makes {ranks} ranks more than {}", fields::MOST_RANKS))),
            }
        }
        "optimizer" => fields::read(words, &mut setting.optimizer, OPTIMIZER, false),
        "mixture" => {
            let mut experts = NO_MIXTURE;
            fields::read(words, &mut experts, MIXTURE, true)?;
            let Some(model) = &mut setting.model else { return Err(Problem::new("mixture", "stands behind its model")) };
            if let Some(flaw) = experts.flaw() {
                return Err(Problem::new(flaw, "does not hold"));
            }
            model.experts = Some(experts);
            Ok(())
        }
        "attention" => {
            let mut attention = NO_ATTENTION;
            fields::read(words, &mut attention, ATTENTION, true)?;
            divides(attention.kv_heads, attention.heads, "kv-heads divide heads")?;
            divides(attention.placement.divisor(attention.slices), attention.sequence, "slices divide the sequence")?;
            setting.attention = Some(attention);
            Ok(())
        }
        "experts" => {
            let mut experts = NO_EXPERTS;
            fields::read(words, &mut experts, EXPERTS, true)?;
            if let Some(rule) = experts.misfit() {
                return Err(Problem::new(rule, "does not hold"));
            }
            setting.experts = Some(experts);
            Ok(())
        }
        _ => {
            let mut model = NO_MODEL;
            fields::read(words, &mut model, MODEL, true)?;
            sound(&model)?;
            setting.model = Some(model);
            Ok(())
        }
    }
}

fn sound(model: &Model) -> Read<()> {
    divides(model.heads, model.hidden, "heads divide hidden")?;
    divides(model.kv_heads, model.heads, "kv-heads divide heads")
}

fn divides(part: usize, whole: usize, text: &str) -> Read<()> {
    if whole.is_multiple_of(part) { Ok(()) } else { Err(Problem::new(text, format!("does not hold: {part} and {whole}"))) }
}

fn print_streams(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, stream) in program.streams.iter().enumerate() {
        let kind = if stream.kind == usual_kind(index) { "" } else { kind_name(stream.kind) };
        writeln!(f, "{}", format!("  {}  {kind}", word(&stream.name)).trim_end())?;
    }
    Ok(())
}

fn read_stream(program: &mut Program, words: &mut Words) -> Read<()> {
    let name = words.any("name of a stream")?;
    let kind =
        words.take(|text| [StreamKind::Compute, StreamKind::Communication].into_iter().find(|kind| kind_name(*kind) == text));
    if program.streams.iter().any(|stream| stream.name == name) {
        return Err(Problem::new(name, "is the name of two streams"));
    }
    let kind = kind.unwrap_or_else(|| usual_kind(program.streams.len()));
    program.streams.push(Stream { name, kind });
    Ok(())
}

/// The first stream computes, the others communicate.
fn usual_kind(index: usize) -> StreamKind {
    if index == 0 { StreamKind::Compute } else { StreamKind::Communication }
}

fn kind_name(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::Compute => "computes",
        StreamKind::Communication => "communicates",
    }
}

fn print_channels(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, channel) in program.channels.iter().enumerate() {
        writeln!(f, "  c{index}  {} -> {}{}", channel.from, channel.to, if channel.buffered { "  buffered" } else { "" })?;
    }
    Ok(())
}

fn read_channel(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "c", program.channels.len())?;
    let from = known_rank(program, words)?;
    words.expect("`->`", |text| (text == "->").then_some(()))?;
    let to = known_rank(program, words)?;
    program.channels.push(Channel { from, to, buffered: words.eat("buffered") });
    Ok(())
}

fn print_groups(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, group) in program.groups.iter().enumerate() {
        write!(f, "  g{index}  {} ", word(&group.name))?;
        let next = |rank: Rank| rank.0.checked_add(1).map(Rank);
        super::runs(&group.ranks, next).try_for_each(|run| match *run {
            [only] => write!(f, " {only}"),
            [first, second] => write!(f, " {first} {second}"),
            _ => write!(f, " {}..{}", run[0], run[run.len() - 1]),
        })?;
        for Fold { line, apart } in &group.folds {
            write!(f, "  each {}", fields::show_line(*line))?;
            if let Some(apart) = apart {
                write!(f, " apart {apart}")?;
            }
        }
        writeln!(f)?;
    }
    Ok(())
}

fn read_group(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "g", program.groups.len())?;
    let name = words.any("name of a group")?;
    let (mut ranks, mut folds) = (Vec::new(), Vec::new());
    while !words.is_empty() {
        if words.eat("each") {
            folds.push(read_fold(words)?);
            continue;
        }
        if let Some((first, last)) = words.take(|text| text.split_once("..").and_then(|(a, b)| Some((rank(a)?, rank(b)?)))) {
            let last = in_range(program, last)?;
            ranks.extend((first.0..=last.0).map(Rank));
        } else {
            ranks.push(known_rank(program, words)?);
        }
        if ranks.len() > program.ranks() {
            return Err(Problem::new(name, format!("has more members than there are ranks, {}", program.ranks())));
        }
    }
    let folded = folds.iter().try_fold(1_usize, |all, fold| all.checked_mul(fold.line.ranks));
    if !folds.is_empty() && folded != Some(program.fold()) {
        return Err(Problem::new(name, format!("does not say of {} ranks whether they meet", program.fold())));
    }
    program.groups.push(Group { name, ranks, folds });
    Ok(())
}

/// Whom a member stands for along a line, and how far apart the numbers of their groups are if they do not meet.
fn read_fold(words: &mut Words) -> Read<Fold> {
    let line = words.expect("number of ranks, and x how far apart they are", fields::read_line)?;
    let apart = if words.eat("apart") {
        Some(words.expect("distance of numbers, up to 65536", |text| whole(text).filter(|apart| *apart <= 1 << 16))?)
    } else {
        None
    };
    Ok(Fold { line, apart })
}

fn print_collectives(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, collective) in program.collectives.iter().enumerate() {
        write!(f, "  x{index}  {} {}", collective.kind.name(), word(&collective.label))?;
        fields::print(f, collective, COLLECTIVE)?;
        writeln!(f)?;
    }
    Ok(())
}

fn read_collective(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "x", program.collectives.len())?;
    let kind = words.one_of("collective", &CollectiveKind::ALL.map(|(_, name)| name))?;
    let kind = collective_kind(kind).expect("one of their names");
    let label = words.any("label")?;
    let (dtype, padding) = (Dtype::default(), Bytes::ZERO);
    let mut collective = Collective { group: GroupId(0), kind, label, step: 0, bytes: Bytes::ZERO, dtype, padding, shards: 1 };
    fields::read(words, &mut collective, COLLECTIVE, false)?;
    if collective.group.index() >= program.groups.len() {
        return Err(Problem::new(collective.group.to_string(), "is not declared").hint("a section `groups` lists all groups"));
    }
    program.collectives.push(collective);
    Ok(())
}

pub(super) fn collective_kind(text: &str) -> Option<CollectiveKind> {
    CollectiveKind::ALL.into_iter().find(|(_, name)| *name == text).map(|(kind, _)| kind)
}

fn print_kernels(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, kernel) in program.kernels.iter().enumerate() {
        write!(f, "  k{index}  {}", kernel.kernel)?;
        fields::print(f, kernel, KERNEL)?;
        writeln!(f)?;
    }
    Ok(())
}

fn read_kernel(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "k", program.kernels.len())?;
    let mut kernel = KernelCost::free(kernel(words)?);
    fields::read(words, &mut kernel, KERNEL, false)?;
    program.kernels.push(kernel);
    Ok(())
}

/// Reads a verb, and the part that it works on.
pub(super) fn kernel(words: &mut Words) -> Read<Kernel> {
    let verb = words.one_of("verb", &Kernel::all(Part::Head).map(|kernel| kernel.words().0))?;
    if let Some(kernel) = Kernel::from_words(verb, None) {
        return Ok(kernel);
    }
    let what = format!("part for `{verb}` to work on");
    let kernel = words.expect(&what, |text| Kernel::from_words(verb, Some(part(text)?)));
    kernel.map_err(|problem| problem.hint("parts are `embedding`, `blocks.0` and so on, and `head`"))
}

pub(super) fn part(text: &str) -> Option<Part> {
    match text {
        "embedding" => Some(Part::Embedding),
        "head" => Some(Part::Head),
        _ => numbered("blocks.")(text).map(Part::Block).or_else(|| module(text)),
    }
}

/// Reads `blocks.3.attn.qkv` or `head.loss`.
fn module(text: &str) -> Option<Part> {
    let (layer, module) = match text.strip_prefix("blocks.") {
        Some(inside) => inside.split_once('.').and_then(|(layer, module)| Some((whole(layer)?, module)))?,
        None => (0, text.split_once('.')?.1),
    };
    let part = Part::Module(layer, Module::find(module)?);
    (part.to_string() == text).then_some(part)
}

fn print_layouts(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, layout) in program.layouts.iter().enumerate() {
        write!(f, "  l{index}  ")?;
        shapes::print_layout(f, layout)?;
        writeln!(f)?;
    }
    Ok(())
}

fn read_layout(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "l", program.layouts.len())?;
    let layout = shapes::read_layout(words)?;
    program.layouts.push(layout);
    Ok(())
}

fn print_parameters(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, parameter) in program.parameters.iter().enumerate() {
        let (name, part) = (word(&parameter.name), parameter.part);
        write!(f, "  p{index}  {name}  {part}  {}  {}", shapes::dims(&parameter.dims), shapes::init(parameter.init))?;
        if let Some(Slice { dim, start, of }) = parameter.slice {
            write!(f, "  dim {dim} from {start} of {of}")?;
        }
        writeln!(f)?;
    }
    Ok(())
}

fn read_parameter(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "p", program.parameters.len())?;
    let name = words.any("name of a parameter")?;
    let part = words.expect("part such as `embedding`, `blocks.0` or `head`", part)?;
    let dims = words.expect("shape such as [256,64]", shapes::read_dims)?;
    let init = shapes::read_init(words)?;
    let slice = if words.is_empty() { None } else { Some(shapes::read_slice(words, &dims)?) };
    program.parameters.push(Parameter { name, part, dims, init, slice });
    Ok(())
}

/// A unit with the number of its shards, then its parameters.
fn print_units(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    for (index, unit) in program.units.iter().enumerate() {
        write!(f, "  u{index}  {}  {} shards ", word(&unit.label), unit.shards)?;
        if unit.apart > 1 {
            write!(f, " apart {} ", unit.apart)?;
        }
        let next = |parameter: ParameterId| parameter.0.checked_add(1).map(ParameterId);
        super::runs(&unit.parameters, next).try_for_each(|run| match run {
            [first, .., last] if run.len() > 2 => write!(f, " {first}..{last}"),
            _ => run.iter().try_for_each(|parameter| write!(f, " {parameter}")),
        })?;
        writeln!(f)?;
    }
    Ok(())
}

fn read_unit(program: &mut Program, words: &mut Words) -> Read<()> {
    id(words, "u", program.units.len())?;
    let label = words.any("label")?;
    let shards = words.expect("number of shards, 1 to 65536", fields::some_ranks)?;
    words.expect("`shards`", |text| (text == "shards").then_some(()))?;
    let apart = if words.eat("apart") { words.expect("distance of ranks, 1 to 65536", fields::some_ranks)? } else { 1 };
    let known = program.parameters.len();
    let mut parameters = Vec::new();
    while !words.is_empty() {
        let numbers = |text: &str| match super::range(text)? {
            (Name::Parameter(first), Name::Parameter(last)) => Some((first, last)),
            _ => None,
        };
        let (first, last) = words.expect("parameter or range of parameters", numbers)?;
        if last.index() >= known {
            return Err(Problem::new(last.to_string(), "is not declared").hint("a section `parameters` lists all parameters"));
        }
        parameters.extend((first.0..=last.0).map(ParameterId));
    }
    program.units.push(Unit { label, parameters, shards, apart });
    Ok(())
}

/// A line of buffers is not longer than this.
const WIDTH: usize = 110;

/// Buffers in the order of their ids: a rank, then layouts, each with the names behind it.
fn print_buffers(program: &Program, f: &mut Formatter<'_>) -> fmt::Result {
    let next = |buffer: Buffer| buffer.name.next().map(|name| Buffer { name, ..buffer });
    let (mut line, mut before) = (String::new(), None);
    for run in super::runs(&program.buffers, next) {
        let Buffer { rank, layout, .. } = run[0];
        if before.is_none_or(|(before, _)| before != rank) || line.len() > WIDTH {
            if before.is_some() {
                writeln!(f, "{line}")?;
            }
            line = format!("  {rank}  {layout}");
        } else if before != Some((rank, layout)) {
            write!(line, "  {layout}")?;
        }
        before = Some((rank, layout));
        match run {
            [first, .., last] if run.len() > 2 => write!(line, " {}..{}", first.name, declared(last))?,
            _ => run.iter().try_for_each(|buffer| write!(line, " {}", declared(buffer)))?,
        }
    }
    if before.is_some() { writeln!(f, "{line}") } else { Ok(()) }
}

/// A name, with its role where that is not the usual one.
fn declared(buffer: &Buffer) -> String {
    let Buffer { name, role, .. } = buffer;
    if *role == name.usual_role() { name.to_string() } else { format!("{name}={}", role.name()) }
}

/// More buffers than this are refused: a short text could ask for all memory.
const MOST_BUFFERS: usize = 1 << 24;

fn read_buffers(program: &mut Program, words: &mut Words) -> Read<()> {
    let rank = known_rank(program, words)?;
    let mut layout = None;
    while !words.is_empty() {
        if let Some(id) = words.take(numbered("l")) {
            if id as usize >= program.layouts.len() {
                return Err(Problem::new(format!("l{id}"), "is not declared").hint("a section `layouts` lists all layouts"));
            }
            layout = Some(LayoutId(id));
            continue;
        }
        let (first, last, role) = words.expect("layout, buffer, or range of buffers", declaration)?;
        let layout = layout.ok_or_else(|| Problem::new(first.to_string(), "has no layout").hint("write one before it: l0"))?;
        let mut name = Some(first);
        while let Some(this) = name {
            if program.buffers.len() == MOST_BUFFERS {
                return Err(Problem::new(this.to_string(), format!("is one buffer too many: {MOST_BUFFERS} are allowed")));
            }
            program.buffer(rank, this, role.unwrap_or(this.usual_role()), layout);
            name = this.next().filter(|_| this != last);
        }
    }
    Ok(())
}

/// Reads `x3.0`, `x3.0=message` or `x3.0..x3.7`.
fn declaration(text: &str) -> Option<(Name, Name, Option<Role>)> {
    let (names, role) = match text.split_once('=') {
        Some((names, role)) => (names, Some(Role::ALL.into_iter().find(|known| known.name() == role)?)),
        None => (text, None),
    };
    let (first, last) = super::range(names)?;
    Some((first, last, role))
}

/// Reads the id of the next entry, which must be the `place`-th.
fn id(words: &mut Words, prefix: &'static str, place: usize) -> Read<()> {
    let wanted = format!("{prefix}{place}");
    words.expect(&format!("id of this entry, which is {wanted}"), |text| (text == wanted).then_some(()))
}

/// Reads a rank of the program.
pub(super) fn known_rank(program: &Program, words: &mut Words) -> Read<Rank> {
    let rank = words.expect("rank such as r0", rank)?;
    in_range(program, rank)
}

fn in_range(program: &Program, rank: Rank) -> Read<Rank> {
    if rank.index() < program.ranks() {
        return Ok(rank);
    }
    let problem = Problem::new(rank.to_string(), format!("is no rank of this program, which has {}", program.ranks()));
    Err(problem.hint("each rank has a section such as `rank 0`"))
}
