//! Fingerprint of an injected document.

use std::fmt::Write as _;

use ring::digest;

/// Bytes of the digest that are kept: enough that two documents never meet, short enough to read.
const HASH_BYTES: usize = 16;

/// Fingerprint of the text of a connection document: the first 16 bytes of its SHA-256 digest in hexadecimal. Injected
/// pods carry it, so that one that was injected with an older document can be told (D80).
pub fn config_hash(document: &str) -> String {
    let digest = digest::digest(&digest::SHA256, document.as_bytes());
    let bytes = digest.as_ref().iter().take(HASH_BYTES);
    bytes.fold(String::with_capacity(2 * HASH_BYTES), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_start_of_sha_256() {
        assert_eq!(config_hash("abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(config_hash(""), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
