//! Passwords and their hashes. Both take long on purpose, and anybody may ask for a comparison: it
//! is how one proves who one is. So few are done at a time, on threads that step back for those
//! that serve clients, and few wait. Never on a thread that serves clients.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use crate::server::aside::Aside;

/// The longest password, in bytes: bcrypt would pass over the rest.
pub(crate) const LONGEST: usize = 72;

/// Hashes and compares passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    cost: u32,
    /// Who waits for a comparison.
    pub(crate) aside: Arc<Aside>,
}

/// Callers that wait for their turn: with bcrypt's usual cost, the last of them waits as long as
/// a request may take.
const WAITING: usize = 64;

impl Passwords {
    /// A quarter of the cores, and one at least.
    pub(crate) fn new(cost: u32, cores: usize) -> Passwords {
        Passwords {
            cost,
            aside: Aside::new("passwords", cores / 4, WAITING),
        }
    }

    /// bcrypt's text for a password, with a new salt. `None` if no randomness is to be had.
    pub(crate) async fn hash(&self, who: &str, password: String) -> Result<Option<Bytes>, Status> {
        let cost = self.cost;
        let hash = move || {
            let parts = bcrypt::hash_with_result(password, cost).ok()?;
            // The version that etcd's library writes.
            let text = parts.format_for_version(bcrypt::Version::TwoA);
            Some(Bytes::from(text))
        };
        self.aside.run(who, hash).await
    }

    /// Whether a password has this hash; a damaged hash is nobody's. `who` is whose turn it is.
    pub(crate) async fn matches(
        &self,
        who: &str,
        password: String,
        hash: Bytes,
    ) -> Result<bool, Status> {
        let compare = move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            bcrypt::verify(password, hash).unwrap_or(false)
        };
        self.aside.run(who, compare).await
    }
}

#[cfg(test)]
mod tests {
    use super::Passwords;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_hash_is_the_password_s_alone() {
        let passwords = Passwords::new(4, 1);
        let hash = passwords.hash("", "secret".to_owned()).await;
        let hash = hash.expect("its turn").expect("a hash");
        assert!(hash.starts_with(b"$2a$04$") && hash.len() == 60, "{hash:?}");
        let matches = async |password: &str, hash: &Bytes| {
            let matches = passwords.matches("", password.to_owned(), hash.clone());
            matches.await.expect("its turn")
        };
        assert!(matches("secret", &hash).await);
        assert!(!matches("Secret", &hash).await);
        assert!(!matches("", &Bytes::new()).await);
        // Written by etcd's own library.
        let theirs =
            Bytes::from_static(b"$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga");
        assert!(matches("allmine", &theirs).await);
    }
}
