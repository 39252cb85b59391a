//! Passwords and their hashes. Both are slow by design, and any client may cause a comparison,
//! since that is how it authenticates. So few run at a time, on threads of lower priority than
//! those that serve clients, and few may wait. Never on a thread that serves clients.
//!
//! A password that was correct a moment ago is not compared again: after a restart, all clients of
//! a fleet log in at once, most of them as one user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use bytes::Bytes;
use tokio::sync::watch;
use tonic::Status;

use super::bcrypt_paced;
use crate::server::scheduling::aside::{Aside, Who};

/// The longest password, in bytes: bcrypt would ignore the rest.
pub(crate) const LONGEST: usize = 72;

/// Hashes and compares passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    cost: u32,
    /// Requests that wait for a comparison.
    pub(crate) aside: Arc<Aside>,
    /// The passwords that were correct a moment ago.
    right: Arc<Right>,
}

/// Requests that may wait for their turn; most of a fleet's need no comparison by then.
const WAITING: usize = 4096;
/// How long one waits: longer than the request timeout, during which a hundred have their turn at
/// bcrypt's usual cost. A refused login ends a client of etcd's library, and a request whose own
/// time is over is dropped and frees its place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How long a correct password is remembered; the lifetime of a simple token.
const MOMENT: Duration = Duration::from_secs(300);
/// Correct passwords that are remembered at a time.
const MOST_RIGHT: usize = 4096;

impl Passwords {
    /// Uses a quarter of the cores, and at least one. No request waits for its turn for longer than
    /// `patience`.
    pub(crate) fn new(cost: u32, cores: usize, patience: Duration) -> Passwords {
        Passwords {
            cost,
            aside: Aside::new("passwords", cores / 4, WAITING, patience),
            right: Arc::new(Right::new()),
        }
    }

    /// The bcrypt hash of a password, with a new salt. `None` if no randomness is available.
    pub(crate) async fn hash(&self, who: Who, password: String) -> Result<Option<Bytes>, Status> {
        let cost = self.cost;
        let hash = move || {
            let parts = bcrypt::hash_with_result(password, cost).ok()?;
            // The version that etcd's library writes.
            let text = parts.format_for_version(bcrypt::Version::TwoA);
            Some(Bytes::from(text))
        };
        self.aside.run(who, hash).await
    }

    /// Whether a password has this hash; a damaged hash matches none. `who` is the caller, for its
    /// turn.
    pub(crate) async fn matches(
        &self,
        who: Who,
        password: String,
        hash: Bytes,
    ) -> Result<bool, Status> {
        let right = Arc::clone(&self.right);
        let tag = right.tag(&password, &hash);
        // Before the check, so that nothing that is learned in between is missed.
        let mut learned = right.learned.subscribe();
        if right.is_known(&tag, Instant::now()) {
            return Ok(true);
        }
        let own = tag.clone();
        let compare = move || {
            // An earlier request in the line may have had the same password.
            if right.is_known(&tag, Instant::now()) {
                return true;
            }
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            let matches = bcrypt_paced::matches(&password, hash, &std::thread::yield_now);
            if matches {
                right.learn(tag, Instant::now());
            }
            matches
        };
        let mut compared = std::pin::pin!(self.aside.run(who, compare));
        loop {
            tokio::select! {
                biased;
                compared = &mut compared => return compared,
                // Another request may have had the same password: then no turn is needed any more.
                Ok(()) = learned.changed() => {
                    if self.right.is_known(&own, Instant::now()) {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// Passwords that were correct a moment ago, as an HMAC of each with the hash to which it was
/// compared: once a user has another password, the old one is no longer known. The key is this
/// process's own and only in its memory, as are the tags.
struct Right {
    /// `None` without randomness: then nothing is remembered.
    key: Option<hmac::Key>,
    since: Mutex<BTreeMap<Tag, Instant>>,
    /// Changes whenever another one is remembered.
    learned: watch::Sender<()>,
}

type Tag = Vec<u8>;

impl std::fmt::Debug for Right {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Right").finish_non_exhaustive()
    }
}

impl Right {
    fn new() -> Right {
        let random = aws_lc_rs::rand::SystemRandom::new();
        Right {
            key: hmac::Key::generate(hmac::HMAC_SHA256, &random).ok(),
            since: Mutex::default(),
            learned: watch::Sender::new(()),
        }
    }

    fn tag(&self, password: &str, hash: &[u8]) -> Option<Tag> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        // The length separates the two.
        context.update(&(hash.len() as u64).to_be_bytes());
        context.update(hash);
        context.update(password.as_bytes());
        Some(context.sign().as_ref().to_vec())
    }

    fn is_known(&self, tag: &Option<Tag>, now: Instant) -> bool {
        let since = tag.as_ref().and_then(|tag| self.lock().get(tag).copied());
        since.is_some_and(|since| now.duration_since(since) < MOMENT)
    }

    fn learn(&self, tag: Option<Tag>, now: Instant) {
        let Some(tag) = tag else { return };
        let mut since = self.lock();
        if since.len() >= MOST_RIGHT {
            since.retain(|_, since| now.duration_since(*since) < MOMENT);
        }
        if since.len() < MOST_RIGHT {
            since.insert(tag, now);
            drop(since);
            self.learned.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Tag, Instant>> {
        // Plain data: a panic in another thread leaves it consistent.
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, MOMENT, MOST_RIGHT, PATIENCE, Passwords, Right, Who};
    use crate::server::scheduling::hosts::Host;
    use bytes::Bytes;
    use futures::FutureExt as _;

    async fn hashed(passwords: &Passwords, password: &str) -> Bytes {
        let hash = passwords.hash(Who::default(), password.to_owned()).await;
        hash.expect("its turn").expect("a hash")
    }

    #[tokio::test]
    async fn hash_verifies_only_its_own_password() {
        let passwords = Passwords::new(4, 1, PATIENCE);
        let hash = hashed(&passwords, "secret").await;
        assert!(hash.starts_with(b"$2a$04$") && hash.len() == 60, "{hash:?}");
        let matches = async |password: &str, hash: &Bytes| {
            let matches = passwords.matches(Who::default(), password.to_owned(), hash.clone());
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

    /// After a restart, the clients of three API servers logged in at once: 64 of them waited for
    /// their turn and the others were refused, which ends a client of etcd's library.
    #[tokio::test]
    async fn many_clients_log_in_at_once() {
        let passwords = Passwords::new(4, 1, PATIENCE);
        let hash = hashed(&passwords, "secret").await;
        let login = |password: &str| {
            let password = password.to_owned();
            Box::pin(passwords.matches(Who::default(), password, hash.clone()))
        };
        let place = passwords.aside.place(Who::default()).await.expect("free");
        let mut fleet: Vec<_> = (0..1000).map(|_| login("secret")).collect();
        for login in &mut fleet {
            assert!(login.as_mut().now_or_never().is_none(), "each waits");
        }
        drop(place);
        for login in fleet {
            assert!(login.await.expect("its turn"));
        }
        // A client that guesses does not delay one that knows the password.
        let place = passwords.aside.place(Who::default()).await.expect("free");
        let known = login("secret").now_or_never().expect("at once");
        assert!(known.expect("not refused"));
        let mut guess = login("Secret");
        assert!(guess.as_mut().now_or_never().is_none());
        drop(place);
        assert!(!guess.await.expect("its turn"));
        // Another hash of the same password is a different one: the password was set again.
        let again = hashed(&passwords, "secret").await;
        assert!(
            !passwords
                .right
                .is_known(&passwords.right.tag("secret", &again), Instant::now())
        );
    }

    /// Logins that arrived before the first comparison ended each waited for their own turn,
    /// between those of a client that guessed.
    #[tokio::test]
    async fn logins_do_not_wait_for_a_guesser() {
        let passwords = Passwords::new(4, 1, PATIENCE);
        let hash = hashed(&passwords, "secret").await;
        let who = |last: u8| Who::from(Some(Host::of([10, 0, 0, last].into())));
        let place = passwords.aside.place(who(3)).await.expect("free");
        let mut fleet: Vec<_> = (0..1000)
            .map(|_| Box::pin(passwords.matches(who(1), "secret".to_owned(), hash.clone())))
            .collect();
        for login in &mut fleet {
            assert!(login.as_mut().now_or_never().is_none(), "each waits");
        }
        // A comparison that does not end, behind the first of the fleet.
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let guess = passwords.aside.run(who(2), move || ends.recv().is_err());
        let mut guess = Box::pin(guess);
        assert!(guess.as_mut().now_or_never().is_none());
        drop(place);
        let first = fleet.remove(0).await;
        assert!(first.expect("its turn"));
        assert!(guess.as_mut().now_or_never().is_none(), "it goes on");
        for login in fleet {
            let known = tokio::time::timeout(PATIENCE, login).await;
            assert!(known.expect("without a turn").expect("not refused"));
        }
        drop(end);
        assert!(guess.await.expect("its turn"));
    }

    #[test]
    fn password_cache_is_bounded_in_time_and_size() {
        let (right, start) = (Right::new(), Instant::now());
        let tag = |number: usize| right.tag(&number.to_string(), b"hash");
        for number in 0..=MOST_RIGHT {
            right.learn(tag(number), start);
        }
        assert!(right.is_known(&tag(0), start) && !right.is_known(&tag(MOST_RIGHT), start));
        assert!(!right.is_known(&tag(0), start + MOMENT));
        right.learn(tag(MOST_RIGHT), start + MOMENT);
        assert_eq!(right.lock().len(), 1);
        assert_ne!(right.tag("b", b"a"), right.tag("", b"ab"));
    }
}
