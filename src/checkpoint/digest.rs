//! A digest of a file: FNV-1a with 64 bits. It finds accidents, and is no protection against forgery.
//!
//! Source: Fowler, Noll, Vo, "The FNV non-cryptographic hash algorithm", RFC 9923.

const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// The digest of `bytes`, 16 hexadecimal digits.
pub(super) fn digest(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(START, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    format!("{hash:016x}")
}

/// Whether `text` could be one.
pub(super) fn is_digest(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_document() {
        assert_eq!(digest(b""), "cbf29ce484222325");
        assert_eq!(digest(b"a"), "af63dc4c8601ec8c");
        assert_eq!(digest(b"foobar"), "85944171f73967e8");
        assert!(is_digest("85944171f73967e8") && !is_digest("85944171f73967E8") && !is_digest("../4171f73967e8"));
    }
}
