//! Passwords and their hashes. Both take long on purpose: a pool of blocking threads does them,
//! so many at a time as there are cores, and never a thread that serves clients.

use bytes::Bytes;
use tokio::sync::Semaphore;

/// The longest password, in bytes: bcrypt would pass over the rest.
pub(crate) const LONGEST: usize = 72;

/// Hashes and compares passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    cost: u32,
    at_a_time: Semaphore,
}

impl Passwords {
    pub(crate) fn new(cost: u32, cores: usize) -> Passwords {
        Passwords {
            cost,
            at_a_time: Semaphore::new(cores.max(1)),
        }
    }

    /// bcrypt's text for a password, with a new salt. `None` if no randomness is to be had.
    pub(crate) async fn hash(&self, password: String) -> Option<Bytes> {
        let cost = self.cost;
        self.aside(move || {
            let parts = bcrypt::hash_with_result(password, cost).ok()?;
            // The version that etcd's library writes.
            let text = parts.format_for_version(bcrypt::Version::TwoA);
            Some(Bytes::from(text))
        })
        .await
        .flatten()
    }

    /// Whether a password has this hash; a damaged hash is nobody's.
    pub(crate) async fn matches(&self, password: String, hash: Bytes) -> bool {
        let compare = move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            bcrypt::verify(password, hash).unwrap_or(false)
        };
        self.aside(compare).await.unwrap_or(false)
    }

    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // It is never closed, and the work does not panic.
        let _turn = self.at_a_time.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Passwords;
    use bytes::Bytes;

    #[tokio::test]
    async fn a_hash_is_the_password_s_alone() {
        let passwords = Passwords::new(4, 1);
        let hash = passwords.hash("secret".to_owned()).await.expect("a hash");
        assert!(hash.starts_with(b"$2a$04$") && hash.len() == 60, "{hash:?}");
        assert!(passwords.matches("secret".to_owned(), hash.clone()).await);
        assert!(!passwords.matches("Secret".to_owned(), hash).await);
        assert!(!passwords.matches(String::new(), Bytes::new()).await);
        // Written by etcd's own library.
        let theirs =
            Bytes::from_static(b"$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga");
        assert!(passwords.matches("allmine".to_owned(), theirs).await);
    }
}
