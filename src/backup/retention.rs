//! Which backups to keep: the newest of each of the last hours, days and weeks, and some more for safety. Pure: the
//! backups and the calendar are arguments.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A rule for how many backups to keep. A backup that any line keeps is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The newest so many.
    pub last: usize,
    /// The newest of each of the last so many hours that have one.
    pub hourly: usize,
    /// The same of days.
    pub daily: usize,
    /// The same of weeks, which begin on Monday.
    pub weekly: usize,
    /// So many good ones are kept whatever the lines above say; at least 1.
    pub min_keep: usize,
}

/// A backup, as retention sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub id: String,
    /// When its member was asked.
    pub at: Timestamp,
    /// Whether nothing is known against it.
    pub good: bool,
    /// Whether it was restored in a verification.
    pub verified: bool,
}

/// Whether a backup stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stays, for these reasons.
    Keep(Vec<&'static str>),
    /// It goes.
    Delete,
}

/// Decides on every backup; `zone` says where an hour, a day and a week begin.
///
/// Counts good ones alone: a damaged one takes nobody's place. A damaged one that is newer than every good one stays,
/// since it is the evidence of what is wrong.
#[must_use]
pub fn decide(
    policy: &Retention,
    candidates: &[Candidate],
    zone: &TimeZone,
) -> BTreeMap<String, Decision> {
    let mut reasons: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    let mut good: Vec<&Candidate> = candidates.iter().filter(|it| it.good).collect();
    good.sort_by(|a, b| (b.at, &b.id).cmp(&(a.at, &a.id)));
    let mut keep = |kept: &Candidate, reason| {
        if let Some(kept) = candidates.iter().find(|it| it.id == kept.id) {
            reasons.entry(&kept.id).or_default().push(reason);
        }
    };
    for kept in good.iter().take(1) {
        keep(kept, "newest good");
    }
    for kept in good.iter().filter(|it| it.verified).take(1) {
        keep(kept, "newest verified");
    }
    for kept in good.iter().take(policy.min_keep.max(1)).skip(1) {
        keep(kept, "minimum");
    }
    for kept in good.iter().take(policy.last) {
        keep(kept, "last");
    }
    for (count, unit, reason) in [
        (policy.hourly, Unit::Hour, "hourly"),
        (policy.daily, Unit::Day, "daily"),
        (policy.weekly, Unit::Week, "weekly"),
    ] {
        let mut seen = BTreeSet::new();
        for candidate in &good {
            let period = period(candidate.at, zone, unit);
            if seen.len() < count && seen.insert(period) {
                keep(candidate, reason);
            }
        }
    }
    let newest_good = good.first().map(|it| it.at);
    let decided = candidates.iter().map(|candidate| {
        let evidence = !candidate.good && newest_good.is_none_or(|at| candidate.at >= at);
        let decision = match reasons.remove(candidate.id.as_str()) {
            Some(reasons) => Decision::Keep(reasons),
            None if evidence => Decision::Keep(vec!["damaged, and no good one is newer"]),
            None => Decision::Delete,
        };
        (candidate.id.clone(), decision)
    });
    decided.collect()
}

#[derive(Clone, Copy)]
enum Unit {
    Hour,
    Day,
    Week,
}

/// A number that is the same for all moments of one hour, day or week. A clock's hour that comes twice in autumn is
/// two.
fn period(at: Timestamp, zone: &TimeZone, unit: Unit) -> (i64, i64) {
    let local = at.to_zoned(zone.clone());
    let week = local.date().iso_week_date();
    match unit {
        Unit::Hour => {
            let offset = i64::from(local.offset().seconds());
            ((at.as_second() + offset).div_euclid(3600), offset)
        }
        Unit::Day => (i64::from(local.year()), i64::from(local.day_of_year())),
        Unit::Week => (i64::from(week.year()), i64::from(week.week())),
    }
}
