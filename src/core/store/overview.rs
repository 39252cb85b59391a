//! What is small of a state: revisions, size, alarms, users. Whoever needs no key keeps no state from being changed in
//! place by asking for this instead of a view.
//!
//! Never holds a key, a lease or a revision of either.

use std::sync::Arc;

use super::alarm::Alarms;
use super::follow::check_following;
use super::state::State;
use super::view::View;
use super::{Alarm, AlarmKind, AuthState, Error, Following, Operation, Revision, Store};

/// What is small of a state. Cloning is O(1).
#[derive(Clone, Debug)]
pub struct Overview {
    revision: Revision,
    compacted: Revision,
    db_size: u64,
    alarms: Alarms,
    auth: Arc<AuthState>,
    following: Option<Following>,
}

impl Overview {
    fn of(state: &State) -> Self {
        Overview {
            revision: state.revision,
            compacted: state.compacted,
            db_size: state.db_size(),
            alarms: state.alarms.clone(),
            auth: Arc::clone(&state.auth),
            following: state.following,
        }
    }

    /// As [`View::revision`].
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// As [`View::compacted`].
    #[must_use]
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// As [`View::db_size`].
    #[must_use]
    pub fn db_size(&self) -> u64 {
        self.db_size
    }

    /// As [`View::alarms`].
    #[must_use]
    pub fn alarms(&self) -> Vec<Alarm> {
        self.alarms.all()
    }

    /// As [`View::alarmed`].
    #[must_use]
    pub fn alarmed(&self, kind: AlarmKind) -> bool {
        self.alarms.any(kind)
    }

    /// As [`View::auth`].
    #[must_use]
    pub fn auth(&self) -> &AuthState {
        &self.auth
    }

    /// As [`View::following`].
    #[must_use]
    pub fn following(&self) -> Option<Following> {
        self.following
    }

    /// Refuses what a cluster that follows another one leaves to that one.
    ///
    /// # Errors
    /// [`Error::Following`].
    pub fn check_following(&self, operation: &Operation) -> Result<(), Error> {
        check_following(self.following.as_ref(), operation)
    }
}

impl View {
    /// What is small of it.
    #[must_use]
    pub fn overview(&self) -> Overview {
        Overview::of(&self.state)
    }
}

impl Store {
    /// What is small of the present state.
    #[must_use]
    pub fn overview(&self) -> Overview {
        Overview::of(&self.state)
    }
}
