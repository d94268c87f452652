//! Shapes as text: `[256,64]`, `f32[1,32,64]`, how parameters start.

use std::fmt::{self, Formatter};

use super::words::{Problem, Read, Words, real, whole, word};
use crate::base::Dtype;
use crate::base::model::Init;
use crate::base::split::Slice;
use crate::program::tables::{Layout, TensorPart};

/// The most elements that a shape may have: sums over many buffers must fit 64 bits.
const MOST_ELEMENTS: usize = 1 << 40;

/// The tensors of a layout; those of a bundle have names.
pub(super) fn print_layout(f: &mut Formatter<'_>, layout: &Layout) -> fmt::Result {
    if layout.parts.is_empty() {
        return f.write_str("nothing");
    }
    layout.parts.iter().enumerate().try_for_each(|(place, part)| {
        let gap = if place == 0 { "" } else { "  " };
        let name = if part.name.is_empty() { String::new() } else { quoted(&part.name) + " " };
        write!(f, "{gap}{name}{}{}", part.dtype, dims(&part.dims))
    })
}

/// A tensor's name, which always stands in quotes.
fn quoted(name: &str) -> String {
    let text = word(name);
    if text.starts_with('"') { text } else { format!("\"{text}\"") }
}

pub(super) fn read_layout(words: &mut Words) -> Read<Layout> {
    let mut parts = Vec::new();
    if words.eat("nothing") {
        return Ok(Layout { parts });
    }
    while parts.is_empty() || !words.is_empty() {
        let name = if words.peek().is_none() && !words.is_empty() { words.any("name")? } else { String::new() };
        let (dtype, dims) = words.expect("tensor such as f32[1,32,64]", tensor)?;
        parts.push(TensorPart { dtype, dims, name });
    }
    let elements: usize = parts.iter().map(|part| part.dims.iter().product::<usize>()).fold(0, usize::saturating_add);
    if elements > MOST_ELEMENTS {
        return Err(Problem::new("", format!("has {elements} elements: {MOST_ELEMENTS} are allowed")));
    }
    Ok(Layout { parts })
}

fn tensor(text: &str) -> Option<(Dtype, Vec<usize>)> {
    let (dtype, dims) = text.split_at(text.find('[')?);
    Some((Dtype::find(dtype)?, read_dims(dims)?))
}

pub(super) fn dims(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", dims.join(","))
}

/// Reads a shape of at most [`MOST_ELEMENTS`] elements.
pub(super) fn read_dims(text: &str) -> Option<Vec<usize>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let dims: Vec<usize> = if inner.is_empty() { Vec::new() } else { inner.split(',').map(whole).collect::<Option<_>>()? };
    let elements = dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim))?;
    (elements <= MOST_ELEMENTS).then_some(dims)
}

pub(super) fn init(init: Init) -> String {
    match init {
        Init::Zeros => "zeros".to_owned(),
        Init::Ones => "ones".to_owned(),
        Init::Normal(deviation) => format!("normal {deviation:?}"),
    }
}

pub(super) fn read_init(words: &mut Words) -> Read<Init> {
    match words.one_of("way to start", &["zeros", "ones", "normal"])? {
        "zeros" => Ok(Init::Zeros),
        "ones" => Ok(Init::Ones),
        _ => words.expect("standard deviation", real).map(Init::Normal),
    }
}

/// Reads `dim 0 from 32 of 256`: where a parameter of this shape stands in a whole tensor. It may reach beyond the end: what is there is
/// padding.
pub(super) fn read_slice(words: &mut Words, dims: &[usize]) -> Read<Slice> {
    let number = |words: &mut Words, name: &'static str, most: usize| {
        words.expect(&format!("`{name}`"), |text| (text == name).then_some(()))?;
        words.expect(&format!("number up to {most}"), |text| whole(text).filter(|&number: &usize| number <= most))
    };
    let dim = number(words, "dim", dims.len().saturating_sub(1))?;
    let start = number(words, "from", MOST_ELEMENTS)?;
    let of = number(words, "of", MOST_ELEMENTS)?;
    let mut whole_dims = dims.to_vec();
    whole_dims.get_mut(dim).into_iter().for_each(|size| *size = of);
    let elements = whole_dims.iter().try_fold(1_usize, |product, &dim| product.checked_mul(dim));
    if dims.is_empty() || elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
        return Err(Problem::new(
            format!("dim {dim} from {start} of {of}"),
            format!("is no place of a tensor {}", self::dims(dims)),
        ));
    }
    Ok(Slice { dim, start, of })
}
