//! The flags that injection touches, and how they are spelled.

/// A flag of vLLM by its long name and its aliases.
#[derive(Debug)]
pub(crate) struct Flag {
    /// With dashes.
    pub name: &'static str,
    /// Other names; they take no underscores.
    pub aliases: &'static [&'static str],
    /// An alias of old releases that means this flag only before a JSON object; else it is an optimisation level.
    pub before_json: Option<&'static str>,
}

const fn flag(name: &'static str) -> Flag {
    Flag { name, aliases: &[], before_json: None }
}

/// The connection to the cache.
pub(crate) const KV_TRANSFER_CONFIG: Flag = flag("--kv-transfer-config");
/// Stages that the layers are spread over.
pub(crate) const PIPELINE_PARALLEL_SIZE: Flag = Flag { aliases: &["-pp"], ..flag("--pipeline-parallel-size") };
/// Prefill in chunks.
pub(crate) const ENABLE_CHUNKED_PREFILL: Flag = flag("--enable-chunked-prefill");
/// Prefill in one go.
pub(crate) const NO_ENABLE_CHUNKED_PREFILL: Flag = flag("--no-enable-chunked-prefill");
/// No CUDA graphs.
pub(crate) const ENFORCE_EAGER: Flag = flag("--enforce-eager");
/// CUDA graphs.
pub(crate) const NO_ENFORCE_EAGER: Flag = flag("--no-enforce-eager");
/// What is compiled and captured, as JSON.
pub(crate) const COMPILATION_CONFIG: Flag =
    Flag { aliases: &["-cc"], before_json: Some("-O"), ..flag("--compilation-config") };

/// One occurrence of a flag.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence<'a> {
    /// Place of its token on the whole line.
    pub at: usize,
    /// The flag as it is spelled, without value: `--flag`, `-f`, `--flag.key`.
    pub key: &'a str,
    /// Its value; nothing when another flag follows, or nothing at all.
    pub value: Option<&'a str>,
}

impl<'a> Occurrence<'a> {
    /// Whether it sets only a part of the flag's JSON value.
    pub(crate) fn is_dotted(&self) -> bool {
        self.key.contains('.')
    }

    /// The flag, without the path of a part.
    pub(crate) fn base(&self) -> &'a str {
        self.key.split('.').next().unwrap_or_default()
    }

    /// The path of the part.
    pub(crate) fn path(&self) -> &'a str {
        self.key.split_once('.').map_or("", |(_, path)| path)
    }
}

impl Flag {
    /// Whether an occurrence is one of this flag.
    pub(crate) fn is(&self, occurrence: &Occurrence<'_>) -> bool {
        let base = occurrence.base();
        let json = || occurrence.is_dotted() || occurrence.value.is_some_and(|it| it.trim_start().starts_with('{'));
        same_long(base, self.name) || self.aliases.contains(&base) || (self.before_json == Some(base) && json())
    }
}

/// Whether a spelling is this long name, underscores being dashes.
fn same_long(spelling: &str, name: &str) -> bool {
    let Some(spelling) = spelling.strip_prefix("--") else { return false };
    let dashed = spelling.bytes().map(|byte| if byte == b'_' { b'-' } else { byte });
    dashed.eq(name.bytes().skip(2))
}
