//! The times of a schedule: cron's five fields in a time zone, delayed by a little that is the schedule's own.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};

/// Why a schedule has no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// No pattern of cron.
    #[error("schedule {pattern:?} is no pattern of cron: {why}")]
    Pattern {
        /// What was given.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// A pattern such as the thirtieth of February.
    #[error("schedule {0:?} has no time in the coming years")]
    Never(String),
}

/// When a schedule is due.
#[derive(Clone, Debug)]
pub struct Calendar {
    cron: Cron,
    pattern: String,
    zone: TimeZone,
    delay: SignedDuration,
}

impl Calendar {
    /// `uid` decides the delay, of at most `jitter_seconds`.
    ///
    /// # Errors
    /// A pattern that cannot be read.
    pub fn new(
        pattern: &str,
        zone: TimeZone,
        jitter_seconds: i32,
        uid: &str,
    ) -> Result<Calendar, CalendarError> {
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser
            .parse(pattern)
            .map_err(|error| CalendarError::Pattern {
                pattern: pattern.to_owned(),
                why: error.to_string(),
            })?;
        Ok(Calendar {
            cron,
            pattern: pattern.to_owned(),
            zone,
            delay: delay(jitter_seconds, uid),
        })
    }

    /// The newest time that is over, with its delay; `None` before the first one after `since`.
    ///
    /// # Errors
    /// A pattern that never matches.
    pub fn due(
        &self,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, CalendarError> {
        let over = now - self.delay;
        let last = self
            .cron
            .find_previous_occurrence(&over.to_zoned(self.zone.clone()), true)
            .map_err(|_| CalendarError::Never(self.pattern.clone()))?
            .timestamp();
        Ok((last > since).then_some(last))
    }

    /// The first time after `after`, with its delay.
    ///
    /// # Errors
    /// A pattern that never matches.
    pub fn next(&self, after: Timestamp) -> Result<Timestamp, CalendarError> {
        let next = self
            .cron
            .find_next_occurrence(&(after - self.delay).to_zoned(self.zone.clone()), false)
            .map_err(|_| CalendarError::Never(self.pattern.clone()))?
            .timestamp();
        Ok(next + self.delay)
    }
}

/// From 0 to the jitter, the same for each schedule at all times.
fn delay(jitter_seconds: i32, uid: &str) -> SignedDuration {
    let digest = Sha256::digest(uid.as_bytes());
    let mut four = [0; 4];
    four.copy_from_slice(&digest[..4]);
    let share = u64::from(u32::from_be_bytes(four));
    let most = u64::from(jitter_seconds.unsigned_abs());
    let seconds = ((most + 1) * share) >> 32;
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0))
}
