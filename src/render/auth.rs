//! The mirror of the credentials of a RESP store.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use ring::digest;

use super::context::Context;
use super::{Child, ChildKind, labels, names};

/// Key of the password in the source Secret and in the mirror.
pub const PASSWORD: &str = "password";
/// Key of the user name in the source Secret and in the mirror.
pub const USERNAME: &str = "username";
/// Annotation of the pod template that makes a rotation of the credentials roll the engine (D12).
pub const HASH_ANNOTATION: &str = "lmcache.ai/credentials-hash";

/// Bytes of the digest that are kept: enough that two values never meet, short enough to read.
const HASH_BYTES: usize = 16;

/// Credentials of a RESP store. They are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    password: Vec<u8>,
    username: Option<Vec<u8>>,
}

impl Credentials {
    /// Credentials of a password and, for stores with users, a user name. An empty user name is none (D66).
    pub fn new(password: Vec<u8>, username: Option<Vec<u8>>) -> Self {
        Credentials { password, username: username.filter(|name| !name.is_empty()) }
    }

    /// Reads the keys `password` and `username` of a Secret's data; `None` when `password` is absent or empty.
    pub fn from_secret_data(data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let password = data.get(PASSWORD).filter(|password| !password.0.is_empty())?;
        Some(Credentials::new(password.0.clone(), data.get(USERNAME).map(|name| name.0.clone())))
    }

    /// A fingerprint of the credentials in hexadecimal, which changes when they change. `scope` (the engine's namespace
    /// and name) goes into it, so that equal passwords of two engines cannot be told from their annotations.
    pub fn hash(&self, scope: &str) -> String {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in
            [Some(scope.as_bytes()), Some(self.password.as_slice()), self.username.as_deref()].into_iter().flatten()
        {
            // Lengths keep the parts apart.
            context.update(&part.len().to_be_bytes());
            context.update(part);
        }
        let bytes = context.finish();
        bytes.as_ref().iter().take(HASH_BYTES).fold(String::with_capacity(2 * HASH_BYTES), |mut text, byte| {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn data(&self) -> BTreeMap<String, ByteString> {
        let username = self.username.as_ref().map(|name| (USERNAME.to_owned(), ByteString(name.clone())));
        [(PASSWORD.to_owned(), ByteString(self.password.clone()))].into_iter().chain(username).collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(<redacted>)")
    }
}

/// The mirror: these keys and nothing else of the source.
pub(super) fn mirror(context: &Context<'_>, credentials: &Credentials) -> Child {
    let name = names::credentials(context.identity.name);
    let object = Secret {
        metadata: labels::object_meta(&context.identity, name.clone()),
        data: Some(credentials.data()),
        ..Secret::default()
    };
    Child::new(ChildKind::Secret, name, &object)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn data(entries: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[rstest]
    #[case(&[("username", "u"), ("password", "p"), ("other", "ignored")], &[("password", "p"), ("username", "u")])]
    #[case(&[("password", "only")], &[("password", "only")])]
    #[case(&[("password", "p"), ("username", "")], &[("password", "p")])]
    fn only_the_credentials_are_copied(#[case] source: &[(&str, &str)], #[case] copy: &[(&str, &str)]) {
        let credentials = Credentials::from_secret_data(&data(source)).unwrap();
        assert!(credentials.data() == data(copy));
    }

    #[rstest]
    #[case(&[])]
    #[case(&[("username", "u")])]
    #[case(&[("password", "")])]
    fn a_secret_without_password_is_unusable(#[case] source: &[(&str, &str)]) {
        assert!(Credentials::from_secret_data(&data(source)).is_none());
    }

    #[test]
    fn hash_changes_with_every_part_and_only_then() {
        let of = |password: &str, username: Option<&str>, scope: &str| {
            Credentials::new(password.into(), username.map(Into::into)).hash(scope)
        };
        let base = of("p", Some("u"), "ai/c1");
        assert_eq!(base, of("p", Some("u"), "ai/c1"));
        assert_eq!(base.len(), 32, "{base}");
        for other in [
            of("q", Some("u"), "ai/c1"),
            of("p", Some("v"), "ai/c1"),
            of("p", None, "ai/c1"),
            of("p", Some("u"), "ai/c2"),
            of("pu", None, "ai/c1"),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(of("p", Some(""), "ai/c1"), of("p", None, "ai/c1"));
    }

    #[test]
    fn debug_shows_no_credentials() {
        let shown = format!("{:?}", Credentials::new(b"hunter2".to_vec(), Some(b"admin".to_vec())));
        assert_eq!(shown, "Credentials(<redacted>)");
    }
}
