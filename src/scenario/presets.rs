//! Named sizes to start from.

use crate::base::model::{Activation, Bias, Model, Norm, Positions};

/// A row of the table: one preset.
#[derive(Debug)]
pub struct Preset {
    /// Name in scenarios.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// Its sizes.
    pub model: Model,
}

/// Every preset; the first is the one that an unwritten `[model]` means.
pub static PRESETS: [Preset; 3] = [
    Preset { name: "tiny", meaning: "small enough to compute in a blink, with bytes as its vocabulary", model: TINY },
    Preset { name: "gpt2", meaning: "GPT-2 with 124 million parameters", model: GPT2 },
    Preset { name: "llama-7b", meaning: "LLaMA with 6.7 billion parameters", model: LLAMA_7B },
];

impl Preset {
    /// The preset called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}

/// The names of all presets.
pub(super) fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|preset| preset.name).collect()
}

const TINY: Model = Model {
    layers: 8,
    hidden: 64,
    heads: 8,
    kv_heads: 8,
    sequence: 32,
    vocab: 256,
    ffn: 256,
    activation: Activation::Gelu,
    norm: Norm::Layer,
    positions: Positions::Learned,
    bias: Bias::NoQkv,
    fused_qkv: true,
    tied: false,
    dropout: 0.0,
};

/// Radford et al. 2019; sizes of the released 124M checkpoint.
const GPT2: Model = Model {
    layers: 12,
    hidden: 768,
    heads: 12,
    kv_heads: 12,
    sequence: 1024,
    vocab: 50_257,
    ffn: 3072,
    activation: Activation::Gelu,
    norm: Norm::Layer,
    positions: Positions::Learned,
    bias: Bias::All,
    fused_qkv: true,
    tied: true,
    dropout: 0.0,
};

/// Touvron et al. 2023, arXiv 2302.13971, table 2; feed-forward width of the released checkpoint.
const LLAMA_7B: Model = Model {
    layers: 32,
    hidden: 4096,
    heads: 32,
    kv_heads: 32,
    sequence: 2048,
    vocab: 32_000,
    ffn: 11_008,
    activation: Activation::Swiglu,
    norm: Norm::Rms,
    positions: Positions::Rotary,
    bias: Bias::None,
    fused_qkv: false,
    tied: false,
    dropout: 0.0,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_published_number_of_parameters() {
        let check = |name: &str, count: usize| {
            let preset = Preset::find(name).expect("a preset of the table");
            assert_eq!(preset.model.parameter_count(), count, "{name}");
        };
        check("gpt2", 124_439_808);
        check("llama-7b", 6_738_415_616);
    }
}
