//! The flags of background maintenance, validated.

use std::time::Duration;

use super::config::{AutoCompaction, Maintenance, ValuesOnDisk};
use super::feature_gates::Gates;
use super::{Flags, parse_duration};

/// Validates them. The text of a refusal names the flag and the remedy.
pub(in crate::server) fn maintenance(
    flags: &Flags,
    gates: &Gates,
    warnings: &mut Vec<String>,
) -> Result<Maintenance, String> {
    let Some(compact_check) = flags.duration("compact-hash-check-time") else {
        return Err(
            "--compact-hash-check-time must be more than 0; the check is off unless --feature-gates=CompactHashCheck=true"
                .to_owned(),
        );
    };
    if flags.is_negative("corrupt-check-time") {
        return Err(
            "--corrupt-check-time must not be negative: 0 turns the comparisons off".to_owned(),
        );
    }
    if flags.is_given("compact-hash-check-time") && !gates.is_on("CompactHashCheck") {
        warnings.push(
            "--compact-hash-check-time has no effect without --feature-gates=CompactHashCheck=true"
                .to_owned(),
        );
    }
    Ok(Maintenance {
        auto_compaction: auto_compaction(flags)?,
        initial_check: gates.is_on("InitialCorruptCheck"),
        check: flags.duration("corrupt-check-time"),
        compact_check: gates.is_on("CompactHashCheck").then_some(compact_check),
        lease_checkpoints: gates.is_on("LeaseCheckpoint"),
        values_on_disk: match gates.given("ValuesOnDisk") {
            Some(true) => ValuesOnDisk::Always,
            Some(false) => ValuesOnDisk::Never,
            None => ValuesOnDisk::OnceAllCan,
        },
    })
}

/// As in etcd: a bare number is hours, or revisions in that mode.
fn auto_compaction(flags: &Flags) -> Result<Option<AutoCompaction>, String> {
    let text = flags.text("auto-compaction-retention");
    let by_revision = flags.text("auto-compaction-mode") == "revision";
    if let Ok(number) = text.parse::<u32>() {
        return Ok(match (number, by_revision) {
            (0, _) => None,
            (kept, true) => Some(AutoCompaction::Revisions(i64::from(kept))),
            (hours, false) => Some(AutoCompaction::Periodic(Duration::from_secs(
                u64::from(hours) * 3600,
            ))),
        });
    }
    if by_revision {
        return Err(format!(
            "--auto-compaction-retention is {text:?}: with --auto-compaction-mode=revision give a number of revisions up to {}",
            u32::MAX
        ));
    }
    let period = parse_duration(text).ok_or_else(|| {
        format!(
            "--auto-compaction-retention is {text:?}: give a number of hours, or a duration with its unit, such as 30m"
        )
    })?;
    Ok((!period.is_zero()).then_some(AutoCompaction::Periodic(period)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn judged(arguments: &[&str]) -> Result<(Maintenance, Vec<String>), String> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let flags = Flags::parse(&arguments, &BTreeMap::new()).expect("flags parse");
        let mut warnings = Vec::new();
        let gates = Gates::of(&flags, &mut warnings)?;
        maintenance(&flags, &gates, &mut warnings).map(|maintenance| (maintenance, warnings))
    }

    #[test]
    fn maintenance_is_off_by_default() {
        let (maintenance, warnings) = judged(&[]).expect("valid");
        assert_eq!(maintenance, Maintenance::default());
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn retention_is_hours_a_duration_or_revisions() {
        let kept = |arguments: &[&str]| {
            judged(arguments).map(|(maintenance, _)| maintenance.auto_compaction)
        };
        let seconds = |seconds| Ok(Some(AutoCompaction::Periodic(Duration::from_secs(seconds))));
        assert_eq!(kept(&["--auto-compaction-retention=2"]), seconds(7200));
        assert_eq!(kept(&["--auto-compaction-retention=90s"]), seconds(90));
        let by_revision = "--auto-compaction-mode=revision";
        assert_eq!(kept(&[by_revision]), Ok(None));
        assert_eq!(
            kept(&[by_revision, "--auto-compaction-retention=1000"]),
            Ok(Some(AutoCompaction::Revisions(1000)))
        );
        for wrong in [
            &[by_revision, "--auto-compaction-retention=5m"][..],
            &["--auto-compaction-retention=-1"],
            &["--auto-compaction-retention=soon"],
        ] {
            let text = kept(wrong).expect_err("refused");
            assert!(text.contains("--auto-compaction-retention"), "{text}");
        }
    }

    #[test]
    fn gates_and_intervals_enable_checks() {
        let gates =
            "--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true,LeaseCheckpoint=true";
        let times = ["--corrupt-check-time=10s", "--compact-hash-check-time=5s"];
        let (maintenance, warnings) = judged(&[gates, times[0], times[1]]).expect("valid");
        let expected = Maintenance {
            auto_compaction: None,
            initial_check: true,
            check: Some(Duration::from_secs(10)),
            compact_check: Some(Duration::from_secs(5)),
            lease_checkpoints: true,
            values_on_disk: ValuesOnDisk::OnceAllCan,
        };
        assert_eq!((maintenance, warnings), (expected, Vec::new()));
        let (maintenance, warnings) = judged(&[times[1]]).expect("valid");
        assert_eq!((maintenance.compact_check, warnings.len()), (None, 1));
        let text = judged(&["--compact-hash-check-time=0s"]).expect_err("refused");
        assert!(text.contains("must be more than 0"), "{text}");
        let text = judged(&["--feature-gates=Foo=true"]).expect_err("refused");
        assert!(text.starts_with("--feature-gates: unrecognized"), "{text}");
    }
}
