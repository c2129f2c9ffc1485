//! Writes the generated files: dashboards, `deploy/monitoring/prometheus_rule.yaml`, the tables in `docs/observability.md`.

#[path = "../tests/support/mod.rs"]
mod support;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (path, text) in support::generated()? {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&path, text)?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
