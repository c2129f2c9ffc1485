//! Writes the state diagram to `states/diagram.mmd`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("diagram.mmd");
    std::fs::write(&path, lmcache_states::mermaid())?;
    println!("wrote {}", path.display());
    Ok(())
}
