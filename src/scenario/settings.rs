//! Settings: the keys that concern a scenario, each with its present value. What a screen's knobs show.

use super::keys::{KEYS, Key, Section, hardware, layer as layer_keys, parallel};
use super::problem::Problems;
use super::reader::{self, Piece};
use super::value::Value;
use super::written::Written;
use super::{expert_parallel, experts, layer};
use crate::base::words::counted;

/// A key with its present value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The key.
    pub key: &'static Key,
    /// Its value as behind `--set key=`; `None` if it is not written and means what [`Key::unwritten`] says.
    pub value: Option<String>,
}

/// The settings of the scenario `text` with `overrides`, section by section: those of its task and its costs. The title, troubles and
/// replaced numbers of a hardware table are left out.
///
/// # Errors
/// All problems of the text and the overrides, as far as reading goes.
pub fn settings(name: &str, text: &str, overrides: &[String]) -> Result<Vec<Setting>, Problems> {
    let written = reader::read(name, text, overrides)?;
    let present = |key: &'static Key| {
        let value = written.value(key, 0).map(|value| shown(&value));
        Setting { key, value }
    };
    Ok(KEYS.iter().copied().filter(|key| concerns(&written, key)).map(present).collect())
}

fn concerns(written: &Written, key: &Key) -> bool {
    let piece = Piece::of(written);
    match key.section {
        Section::Top | Section::Device | Section::Inside | Section::Between | Section::Trouble => false,
        Section::Collective => piece == Some(Piece::Collective),
        Section::Layer => piece == Some(Piece::Layer) && (key.name == layer_keys::KIND.name || !experts::is_asked(written)),
        Section::Hardware => is_of_costs(written, key),
        Section::Numerics => true,
        _ if piece == Some(Piece::Layer) && experts::is_asked(written) => experts::concerns(key),
        _ if piece == Some(Piece::Layer) => layer::concerns(key),
        Section::ContextParallel => false,
        Section::Experts => piece.is_none() && expert_parallel::is_asked(written),
        _ if key.name == parallel::EXPERT.name => piece.is_none() && expert_parallel::is_asked(written),
        _ => piece.is_none() && !["parallel.context", "parallel.expert_tensor"].contains(&key.path().as_str()),
    }
}

/// Unit costs count slots; a hardware table has nodes.
fn is_of_costs(written: &Written, key: &Key) -> bool {
    let is_unit = written.value(&hardware::COSTS, 0) == Some(Value::Text("unit".to_owned()));
    match key.unit {
        "slots" => is_unit,
        _ => !is_unit || key.name == hardware::COSTS.name || key.name == hardware::MEMORY_GB.name,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Integer(integer) => integer.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Text(text) if text.contains('\n') => counted(text.lines().count() as u64, "row"),
        Value::Text(text) => text.clone(),
        Value::Integers(list) => format!("{list:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of `path`; `unwritten` without one, `absent` if it does not concern the scenario.
    fn value(text: &str, overrides: &[&str], path: &str) -> String {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        let settings = settings("test.toml", text, &overrides).expect("a scenario");
        let setting = settings.into_iter().find(|setting| setting.key.path() == path);
        setting.map_or("absent".to_owned(), |setting| setting.value.unwrap_or("unwritten".to_owned()))
    }

    #[test]
    fn a_setting_shows_what_is_written_or_what_that_means() {
        let text = "[parallel]\npipeline = 4\n";
        assert_eq!(value(text, &[], "parallel.pipeline"), "4");
        assert_eq!(value(text, &["parallel.pipeline=8"], "parallel.pipeline"), "8");
        assert_eq!(value(text, &[], "pipeline.schedule"), "1f1b");
        assert_eq!(value(text, &[], "hardware.backward_weight"), "1");
        assert_eq!(value(text, &[], "model.layers"), "unwritten");
        assert_eq!(value(text, &[], "collective.ranks"), "absent");
        assert_eq!(value(text, &["hardware.costs=h100-nvlink"], "hardware.forward"), "absent");
        assert_eq!(value("[collective]\nranks = 3\n", &[], "collective.ranks"), "3");
        assert_eq!(value("[collective]\nranks = 3\n", &[], "pipeline.schedule"), "absent");
        assert_eq!(value("[layer]\n", &[], "parallel.context"), "1");
        assert_eq!(value("[layer]\n", &[], "model.vocab"), "absent");
        assert_eq!(value("[collective]\nranks = 3\n", &[], "layer.causal"), "absent");
    }
}
