//! Whether a promise was kept.

/// Whether a bound was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Met,
    /// It was not.
    Missed,
    /// It was not judged, and why.
    NotJudged(&'static str),
}

impl Verdict {
    /// Of a bound that is judged.
    pub fn of(met: bool) -> Self {
        if met { Self::Met } else { Self::Missed }
    }

    /// As the last column of a table.
    pub fn text(&self) -> String {
        match self {
            Self::Met => "met".to_owned(),
            Self::Missed => "MISSED".to_owned(),
            Self::NotJudged(why) => format!("not judged: {why}"),
        }
    }
}
