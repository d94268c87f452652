//! Named sizes to start from, and models of exactly so many parameters.

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
pub static PRESETS: [Preset; 9] = [
    Preset { name: "tiny", meaning: "small enough to compute in a blink, with bytes as its vocabulary", model: TINY },
    Preset { name: "gpt2", meaning: "GPT-2 with 124 million parameters", model: GPT2 },
    Preset { name: "llama-7b", meaning: "LLaMA with 6.7 billion parameters", model: LLAMA_7B },
    Preset { name: "llama-70b", meaning: "Llama 2 with 69 billion parameters and 8 key and value heads", model: LLAMA_70B },
    Preset { name: "llama-405b", meaning: "Llama 3 with 406 billion parameters and 8 key and value heads", model: LLAMA_405B },
    Preset { name: "gpt3-175b", meaning: "GPT-3 with 175 billion parameters", model: GPT3_175B },
    Preset {
        name: "bloom-176b",
        meaning: "BLOOM with 176 billion parameters; positions rotate, where BLOOM's are biases of scores",
        model: BLOOM_176B,
    },
    Preset { name: "mt-530b", meaning: "Megatron-Turing with 530 billion parameters", model: MT_530B },
    Preset { name: "1t", meaning: "Megatron's model of 1,008 billion parameters", model: ONE_TRILLION },
];

impl Preset {
    /// The preset called `name`.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PRESETS.iter().find(|preset| preset.name == name)
    }
}

/// The model that a preset's name or a number of parameters (`7b`, `7.5b`) stands for.
#[must_use]
pub fn model(text: &str) -> Option<Model> {
    Preset::find(text).map(|preset| preset.model.clone()).or_else(|| sized(parameters(text)?))
}

/// A number of parameters: billions with at most three decimals, up to a hundred trillion.
fn parameters(text: &str) -> Option<usize> {
    let billions = text.strip_suffix('b')?;
    let (whole, decimals) = billions.split_once('.').unwrap_or((billions, "0"));
    let is_number = |digits: &str, most| (1..=most).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole, 5) || !is_number(decimals, 3) {
        return None;
    }
    let millions: usize = format!("{whole}{decimals:0<3}").parse().ok()?;
    (millions >= 100).then_some(millions * 1_000_000)
}

/// A transformer with exactly `parameters` parameters, and a usual shape: heads of at most 128, 4h wide feed-forward layers, about one
/// layer for every 128 columns. The vocabulary takes what the layers leave.
///
/// Every tensor is a multiple of h, and h has as many factors of two as can be: shards over 2, 4, 8, ... ranks need no padding.
fn sized(parameters: usize) -> Option<Model> {
    const SMALLEST_VOCABULARY: usize = 30_000;
    // 12 h^2 parameters a layer, h / 128 layers.
    let usual = (1..1 << 20).find(|h| 12 * h * h * h / 128 >= parameters)?;
    let twos = parameters.trailing_zeros().min(10);
    let nearest = |twos: u32, reach: usize| {
        let multiples = (1..=(reach * usual) >> twos).map(|multiple| multiple << twos);
        let fits = |h: &usize| parameters.is_multiple_of(*h) && *h > usual / reach;
        multiples.filter(fits).min_by_key(|h| h.abs_diff(usual))
    };
    let hidden = (3..=twos).rev().find_map(|twos| nearest(twos, 2)).or_else(|| nearest(3, 4))?;
    let layer = 12 * hidden + 2;
    let layers = (parameters / hidden).checked_sub(SMALLEST_VOCABULARY)? / layer;
    let heads = hidden / (2..=128).rev().step_by(2).find(|size| hidden.is_multiple_of(*size))?;
    let vocab = parameters / hidden - layers * layer - 1;
    let model = Model { layers, hidden, heads, kv_heads: heads, vocab, ffn: 4 * hidden, ..SIZED };
    (layers > 0).then_some(model)
}

/// The names of all presets.
#[must_use]
pub fn names() -> Vec<&'static str> {
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
    experts: None,
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
    experts: None,
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
    experts: None,
};

/// Touvron et al. 2023, arXiv 2307.09288; sizes of the released checkpoint.
const LLAMA_70B: Model = Model { layers: 80, hidden: 8192, heads: 64, kv_heads: 8, sequence: 4096, ffn: 28_672, ..LLAMA_7B };

/// Grattafiori et al. 2024, arXiv 2407.21783, table 3.
const LLAMA_405B: Model =
    Model { layers: 126, hidden: 16_384, heads: 128, sequence: 8192, vocab: 128_256, ffn: 53_248, ..LLAMA_70B };

/// Brown et al. 2020, arXiv 2005.14165, table 2.1; GPT-2's vocabulary.
const GPT3_175B: Model = Model { layers: 96, hidden: 12_288, heads: 96, kv_heads: 96, sequence: 2048, ffn: 49_152, ..GPT2 };

/// Workshop et al. 2022, arXiv 2211.05100, table 3, but for its positions and the norm behind its embedding.
const BLOOM_176B: Model = Model {
    layers: 70,
    hidden: 14_336,
    heads: 112,
    kv_heads: 112,
    sequence: 2048,
    vocab: 250_880,
    ffn: 57_344,
    positions: Positions::Rotary,
    ..GPT2
};

/// Narayanan et al. 2021, arXiv 2104.04473, table 1, with its vocabulary of 51,200 and sequences of 2,048.
const MT_530B: Model =
    Model { layers: 105, hidden: 20_480, heads: 128, kv_heads: 128, sequence: 2048, vocab: 51_200, ffn: 81_920, ..GPT2 };

/// The same table's last row.
const ONE_TRILLION: Model = Model { layers: 128, hidden: 25_600, heads: 160, kv_heads: 160, ffn: 102_400, ..MT_530B };

/// What models of exactly so many parameters have in common: tensors of a multiple of h elements alone.
const SIZED: Model = Model {
    positions: Positions::Rotary,
    activation: Activation::Gelu,
    norm: Norm::Rms,
    bias: Bias::None,
    tied: true,
    ..LLAMA_7B
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
        check("llama-70b", 68_976_648_192);
        check("llama-405b", 405_853_388_800);
        // The released one has 2 h more, in the norm behind its embedding.
        check("bloom-176b", 176_247_271_424 - 2 * 14_336);
        // 12 l h^2 + 13 l h + (v + t) h, and the last norm's 2 h, which the papers' formula leaves out.
        let formula = |l: usize, h: usize, v: usize, t: usize| 12 * l * h * h + 13 * l * h + (v + t) * h + 2 * h;
        check("gpt3-175b", formula(96, 12_288, 50_257, 2048));
        check("mt-530b", formula(105, 20_480, 51_200, 2048));
        check("1t", formula(128, 25_600, 51_200, 2048));
    }

    #[test]
    fn a_number_of_parameters_is_met_exactly() {
        let check = |text: &str, count: usize| {
            let model = model(text).unwrap_or_else(|| panic!("{text} is a number of parameters"));
            assert_eq!(model.parameter_count(), count, "{text}: {model:?}");
            let head = model.hidden / model.heads;
            assert!(head * model.heads == model.hidden && head.is_multiple_of(2) && head >= 40, "{text}: {model:?}");
            let aspect = model.hidden / model.layers;
            assert!((12..=1600).contains(&aspect) && (30_000..2_000_000).contains(&model.vocab), "{text}: {model:?}");
        };
        check("0.5b", 500_000_000);
        check("1b", 1_000_000_000);
        check("7b", 7_000_000_000);
        check("7.5b", 7_500_000_000);
        check("13b", 13_000_000_000);
        check("6.738b", 6_738_000_000);
        check("70b", 70_000_000_000);
        check("72b", 72_000_000_000);
        check("128b", 128_000_000_000);
        check("175b", 175_000_000_000);
        check("405b", 405_000_000_000);
        check("1000b", 1_000_000_000_000);
        for millions in (100..4_000_000).step_by(39_119) {
            check(&format!("{}.{:03}b", millions / 1000, millions % 1000), millions * 1_000_000);
        }
        for text in ["b", "0b", "-7b", "7", "7B", "7.b", "7.1234b", "1e3b", "0.001b", "123456b", " 7b", "７b"] {
            assert_eq!(model(text), None, "{text}");
        }
    }
}
