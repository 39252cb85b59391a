//! Wall time, for what needs it outside of consensus: freshness of proofs, etcd's member IDs. Never
//! used for replicated state or for time-outs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time since 1970; zero if the clock is set to an earlier time.
pub(crate) fn since_1970() -> Duration {
    #[allow(clippy::disallowed_methods)]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The same in milliseconds.
pub(crate) fn unix_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// The present date in HTTP's form (RFC 9110, section 5.6.7).
pub(crate) fn http_date() -> String {
    date_of(since_1970())
}

fn date_of(since_1970: Duration) -> String {
    // After the year 9999 it is that of 1970.
    let time = jiff::Timestamp::UNIX_EPOCH.checked_add(since_1970);
    let time = time.unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_has_the_form_of_http() {
        // The example of RFC 9110.
        let date = date_of(Duration::from_secs(784_111_777));
        assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
