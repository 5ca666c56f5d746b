//! Secrets: drawn from the system, kept where only their owner reads them, and what follows from them.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// 32 random bytes from the system.
pub fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// A random number from the system, to seed what is drawn from it.
pub fn seed() -> io::Result<u64> {
    let [a, b, c, d, e, f, g, h, ..] = random()?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

/// A secret for one purpose that follows from another secret, such as a private key (HMAC-SHA256).
pub fn derived(from: &[u8], purpose: &str) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, from);
    let tag = ring::hmac::sign(&key, purpose.as_bytes());
    tag.as_ref().try_into().expect("HMAC-SHA256 gives 32 bytes")
}

/// Replaces `path` by a file with `text` that only its owner may read. A crash or a
/// full disk leaves the old file as it was.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = (|| {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}
