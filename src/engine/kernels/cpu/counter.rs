//! Random numbers by counting: number i of a stream depends on the seed, the stream's name and i alone, so that ranks which
//! make a part each make what one device makes. Jumping to number i costs nothing, so a saved state is a number.

/// A stream of random numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream(u64);

impl Stream {
    /// The stream called `name`.
    pub(super) fn new(seed: u64, name: &str) -> Stream {
        Stream(name.bytes().fold(mix(seed), |key, byte| mix(key ^ u64::from(byte))))
    }

    /// Number `index`, all 64 bits random.
    pub(super) fn bits(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// Numbers 2 `pair` and 2 `pair` + 1 of the standard normal distribution, by Box and Muller's transform of two uniform numbers.
    pub(super) fn normals(self, pair: u64) -> [f64; 2] {
        let radius = (-2.0 * (1.0 - self.uniform(2 * pair)).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.uniform(2 * pair + 1)).sin_cos();
        [radius * cosine, radius * sine]
    }

    /// Number `index` in [0, 1), a multiple of 2^-53.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit an f64")]
    fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 2^64 / golden ratio, odd: Weyl's step.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`'s finaliser (Steele, Lea and Flood, 2014): every input bit changes half of the output bits.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
