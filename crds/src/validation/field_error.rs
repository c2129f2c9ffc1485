//! One finding about one field, in the words that Kubernetes users know from the API server.

use std::{collections::HashSet, fmt};

/// The value that was refused, as it is printed: numbers in their shortest form, text in quotes.
#[derive(Clone, Debug, PartialEq)]
pub enum BadValue {
    /// A number with a fraction.
    Number(f64),
    /// A whole number.
    Integer(i32),
    /// A text.
    Text(String),
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::Number(number) => write!(f, "{number}"),
            BadValue::Integer(number) => write!(f, "{number}"),
            BadValue::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl From<f64> for BadValue {
    fn from(number: f64) -> Self {
        BadValue::Number(number)
    }
}

impl From<i32> for BadValue {
    fn from(number: i32) -> Self {
        BadValue::Integer(number)
    }
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        BadValue::Text(text.to_owned())
    }
}

/// Why a field is refused. Displayed as the API server would: `path: Invalid value: v: detail`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FieldError {
    /// The field has a value that it must not have.
    #[error("{path}: Invalid value: {value}: {detail}")]
    Invalid {
        /// Path of the field from the root of the resource, such as `spec.l1.sizeGB`.
        path: String,
        /// The value found; an empty text where a whole object is refused.
        value: BadValue,
        /// What is expected instead.
        detail: String,
    },
    /// The field is missing or empty.
    #[error("{path}: Required value: {detail}")]
    Required {
        /// Path of the field from the root of the resource.
        path: String,
        /// What is expected.
        detail: String,
    },
    /// The field has a value outside of a fixed list.
    #[error("{path}: Unsupported value: {value}: supported values: {}", quoted(supported))]
    Unsupported {
        /// Path of the field from the root of the resource.
        path: String,
        /// The value found.
        value: BadValue,
        /// The whole list.
        supported: &'static [&'static str],
    },
}

impl FieldError {
    /// Path of the field from the root of the resource, such as `spec.l1.sizeGB`.
    pub fn path(&self) -> &str {
        match self {
            FieldError::Invalid { path, .. }
            | FieldError::Required { path, .. }
            | FieldError::Unsupported { path, .. } => path,
        }
    }
}

fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
}

/// The errors as one text, joined by `; ` as the condition `ConfigValid` shows them; identical texts once.
pub fn join_errors(errors: &[FieldError]) -> String {
    let mut seen = HashSet::new();
    let texts = errors.iter().map(ToString::to_string).filter(|text| seen.insert(text.clone()));
    texts.collect::<Vec<_>>().join("; ")
}

/// Findings in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<FieldError>);

impl Findings {
    pub(super) fn invalid(&mut self, path: &str, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.0.push(FieldError::Invalid { path: path.to_owned(), value: value.into(), detail: detail.into() });
    }

    pub(super) fn required(&mut self, path: &str, detail: &str) {
        self.0.push(FieldError::Required { path: path.to_owned(), detail: detail.to_owned() });
    }

    pub(super) fn unsupported(&mut self, path: &str, value: impl Into<BadValue>, supported: &'static [&'static str]) {
        self.0.push(FieldError::Unsupported { path: path.to_owned(), value: value.into(), supported });
    }

    /// Refuses a set number that is not greater than 0.
    pub(super) fn positive(&mut self, path: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| *value <= 0.0 || value.is_nan()) {
            self.invalid(path, value, "must be greater than 0");
        }
    }

    /// Refuses a set number below 0.
    pub(super) fn not_negative(&mut self, path: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| *value < 0.0 || value.is_nan()) {
            self.invalid(path, value, "must be >= 0");
        }
    }

    /// Refuses a set share outside of (0, 1].
    pub(super) fn share(&mut self, path: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| !(*value > 0.0 && *value <= 1.0)) {
            self.invalid(path, value, "must be in (0.0, 1.0]");
        }
    }

    /// Refuses a set number outside of `min..=max`.
    pub(super) fn range(&mut self, path: &str, value: Option<i32>, min: i32, max: i32) {
        if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
            self.invalid(path, value, format!("must be in [{min}, {max}]"));
        }
    }

    /// Refuses a set number below `min`.
    pub(super) fn at_least(&mut self, path: &str, value: Option<i32>, min: i32) {
        if let Some(value) = value.filter(|value| *value < min) {
            self.invalid(path, value, format!("must be >= {min}"));
        }
    }

    pub(super) fn into_errors(self) -> Vec<FieldError> {
        self.0
    }
}
