//! Simple tokens: random letters, a dot and the index of the entry that created them. Each member
//! keeps them in memory for as long as they are used. Never replicated beyond that entry: after a
//! restart only those that are still in the log and young enough are known again.

// The order of tokens is never observed.
#![allow(clippy::disallowed_types)]

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;

use crate::node::{Applied, Outcome};
use crate::store::{Response, TokenChange};

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Letters in a token.
const LENGTH: usize = 16;
/// How often expired tokens are dropped.
const SWEEP: Duration = Duration::from_secs(1);

/// The tokens that this member knows.
#[derive(Debug)]
pub(crate) struct SimpleTokens {
    ttl: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    tokens: HashMap<String, Token>,
    swept: Instant,
}

#[derive(Debug)]
struct Token {
    user: String,
    until: Instant,
}

impl SimpleTokens {
    pub(crate) fn new(ttl: Duration) -> SimpleTokens {
        SimpleTokens {
            ttl,
            known: Mutex::new(Known {
                tokens: HashMap::new(),
                swept: Instant::now(),
            }),
        }
    }

    /// Applies an entry to the tokens. A token requested longer ago than the lifetime of tokens, by
    /// the clocks of the two members, is not made valid again.
    pub(crate) fn learn(&self, applied: &Applied, now_ms: u64) {
        let Outcome::Store(Ok(Response::Auth(response))) = &applied.outcome else {
            return;
        };
        match &response.tokens {
            TokenChange::None => {}
            TokenChange::Issued {
                user,
                prefix,
                issued_ms,
            } => {
                let age = Duration::from_millis(now_ms.saturating_sub(*issued_ms));
                if let Some(left) = self.ttl.checked_sub(age) {
                    let token = format!("{prefix}.{}", applied.index);
                    self.add(token, user.clone(), left);
                }
            }
            TokenChange::Revoked { user } => {
                self.lock().tokens.retain(|_, token| token.user != *user);
            }
            TokenChange::AllRevoked => self.clear(),
        }
    }

    /// Forgets every token.
    pub(crate) fn clear(&self) {
        self.lock().tokens.clear();
    }

    /// The user of a token, whose lifetime starts over.
    pub(crate) fn user(&self, token: &str) -> Option<String> {
        let now = Instant::now();
        let mut known = self.lock();
        let token = known.tokens.get_mut(token)?;
        if token.until < now {
            return None;
        }
        token.until = now + self.ttl;
        Some(token.user.clone())
    }

    fn add(&self, token: String, user: String, left: Duration) {
        let now = Instant::now();
        let mut known = self.lock();
        if now.duration_since(known.swept) >= SWEEP {
            known.tokens.retain(|_, token| token.until >= now);
            known.swept = now;
        }
        let until = now + left;
        known.tokens.insert(token, Token { user, until });
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// New random letters. `None` if no randomness is available.
pub(crate) fn letters() -> Option<String> {
    let mut text = String::with_capacity(LENGTH);
    while text.len() < LENGTH {
        let mut bytes = [0; 2 * LENGTH];
        rand::fill(&mut bytes).ok()?;
        // Four whole alphabets; larger bytes would favour some letters.
        let fair = bytes.iter().filter(|byte| **byte < 208);
        let letters = fair.map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
        text.extend(letters.take(LENGTH - text.len()));
    }
    Some(text)
}

/// The index in a token: a member that has not applied that entry cannot know the token yet.
pub(crate) fn index(token: &str) -> Option<u64> {
    let (_, index) = token.split_once('.')?;
    index.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::AuthResponse;

    fn applied(index: u64, tokens: TokenChange) -> Applied {
        let response = AuthResponse {
            tokens,
            ..AuthResponse::default()
        };
        Applied {
            index,
            term: 1,
            request: None,
            outcome: Outcome::Store(Ok(Response::Auth(response))),
        }
    }

    fn issued(user: &str, issued_ms: u64) -> TokenChange {
        TokenChange::Issued {
            user: user.to_owned(),
            prefix: "letters".to_owned(),
            issued_ms,
        }
    }

    #[test]
    fn token_is_letters_and_its_log_index() {
        let letters = letters().expect("letters");
        assert_eq!(letters.len(), 16);
        assert!(letters.bytes().all(|byte| byte.is_ascii_alphabetic()));
        assert_eq!(index("letters.17"), Some(17));
        for other in ["letters", "letters.", "letters.x", "a.1.2", "a.-1", ""] {
            assert_eq!(index(other), None, "{other}");
        }
    }

    #[test]
    fn tokens_end_with_their_ttl_or_user() {
        let tokens = SimpleTokens::new(Duration::from_secs(300));
        tokens.learn(&applied(7, issued("alice", 1_000)), 1_000);
        tokens.learn(&applied(8, issued("bob", 1_000)), 200_000);
        tokens.learn(&applied(9, issued("carol", 1_000)), 301_001);
        assert_eq!(tokens.user("letters.7").as_deref(), Some("alice"));
        assert_eq!(tokens.user("letters.8").as_deref(), Some("bob"));
        assert_eq!(tokens.user("letters.9"), None, "too old when it came");
        assert_eq!(tokens.user("letters.6"), None);
        let gone = TokenChange::Revoked {
            user: "alice".to_owned(),
        };
        tokens.learn(&applied(10, gone), 1_000);
        assert_eq!(tokens.user("letters.7"), None);
        assert!(tokens.user("letters.8").is_some());
        tokens.learn(&applied(11, TokenChange::AllRevoked), 1_000);
        assert_eq!(tokens.user("letters.8"), None);
        let brief = SimpleTokens::new(Duration::ZERO);
        brief.learn(&applied(1, issued("alice", 5)), 5);
        let over = || brief.user("letters.1").is_none();
        while !over() {
            std::thread::yield_now();
        }
    }
}
