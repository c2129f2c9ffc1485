//! Small file helpers: private folders and the folders of clusters that belong to a process.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Creates a folder that only its owner can enter; it holds keys.
pub(crate) fn private_folder(path: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create {}", path.display()))
}

/// Writes a file that only its owner can read.
pub(crate) fn private_file(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// A new folder under the target folder for a cluster of this process, `testbed/<pid>-<count>`.
/// What processes that are gone left behind is removed on the way.
pub(crate) fn own_folder() -> Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let root = target_folder().join("testbed");
    private_folder(&root)?;
    remove_leftovers(&root);
    let path = root.join(format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    private_folder(&path)?;
    Ok(path)
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}

fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()?.parse::<u32>().ok());
        let has_proc = Path::new("/proc/self").exists();
        if owner.is_some_and(|pid| has_proc && !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
