//! The metrics of all clusters in the exposition format: every sample of a metric behind its description, as the format
//! wants it, with the cluster's namespace and name and few other labels. Reads figures alone, and keeps nothing.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder,
};
use prometheus_client::metrics::MetricType;

use super::figures::{Figures, HEALTHS, ROLES};
use super::names::{self, Kind, Metric};
use crate::crd::{ConditionStatus, FollowPhase, MemberHealth, MemberRole, StepState};

/// A label with its value.
type Label<'a> = (&'a str, &'a str);
/// The one number that a metric has of a cluster, if it is known.
type Number = fn(&Figures) -> Option<i64>;
/// Writes the samples that a metric has of a cluster.
type Samples = fn(&mut MetricEncoder<'_>, &Figures) -> fmt::Result;

/// Metrics of one sample a cluster.
const NUMBERS: &[(&Metric, Number)] = &[
    (&names::WANTED, |one| Some(one.wanted)),
    (&names::PAUSED, |one| Some(one.paused.into())),
    (&names::GENERATION, |one| one.generation),
    (&names::OBSERVED_GENERATION, |one| one.observed_generation),
    (&names::VOTERS, |one| one.voters),
    (&names::READY, |one| one.ready),
    (&names::UPDATED, |one| one.updated),
    (&names::TOLERATED, |one| one.tolerated),
    (&names::ALLOWED, |one| one.disruptions_allowed),
    (&names::FAILING_SINCE, |one| one.failing_since),
    (&names::LAST_BACKUP, |one| one.backup.last_success),
    (&names::LAST_VERIFIED, |one| one.backup.last_verified),
    (&names::RECOVERY_SECONDS, |one| one.backup.recovery_seconds),
    (&names::ARCHIVED, |one| one.backup.archived),
    (&names::FOLLOW_REVISIONS, |one| one.follow?.lag_revisions),
    (&names::FOLLOW_SECONDS, |one| one.follow?.lag_seconds),
];

/// Metrics with further labels.
const LABELLED: &[(&Metric, Samples)] = &[
    (&names::INFO, info),
    (&names::CONDITION, conditions),
    (&names::REASON, reasons),
    (&names::MEMBERS, members),
    (&names::LAG, lags),
    (&names::STEP_STARTED, step),
    (&names::CERTIFICATE_ENDS, certificates),
    (&names::FOLLOW_PHASE, phase),
];

const STATUSES: [ConditionStatus; 3] = [
    ConditionStatus::True,
    ConditionStatus::False,
    ConditionStatus::Unknown,
];
const PHASES: [FollowPhase; 4] = [
    FollowPhase::Seeding,
    FollowPhase::Following,
    FollowPhase::Frozen,
    FollowPhase::CutOver,
];

/// Writes the metrics of these clusters, and how many others could not be read.
pub(crate) fn encode(
    all: &[Figures],
    unreadable: i64,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    described(encoder, &names::UNREADABLE)?.encode_gauge(&unreadable)?;
    if all.is_empty() {
        return Ok(());
    }
    for (metric, number) in NUMBERS {
        let mut to = described(encoder, metric)?;
        for one in all {
            if let Some(number) = number(one) {
                gauge(&mut to, one, &[], number)?;
            }
        }
    }
    for (metric, samples) in LABELLED {
        let mut to = described(encoder, metric)?;
        for one in all {
            samples(&mut to, one)?;
        }
    }
    Ok(())
}

/// Begins a metric.
fn described<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    metric: &'e Metric,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
        Kind::Info => MetricType::Info,
    };
    // As the registry writes what it describes.
    let help = format!("{}.", metric.help());
    encoder.encode_descriptor(metric.family(), &help, None, kind)
}

/// The labels of a sample: those of its cluster, and these.
struct Labels<'a> {
    one: &'a Figures,
    more: &'a [Label<'a>],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let own = [
            ("namespace", self.one.namespace.as_str()),
            ("name", self.one.name.as_str()),
        ];
        for label in own.iter().chain(self.more) {
            EncodeLabel::encode(label, encoder.encode_label())?;
        }
        Ok(())
    }
}

fn gauge(
    to: &mut MetricEncoder<'_>,
    one: &Figures,
    more: &[Label<'_>],
    number: i64,
) -> fmt::Result {
    to.encode_family(&Labels { one, more })?
        .encode_gauge(&number)
}

fn info(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    let more = [
        ("version", one.version.as_str()),
        ("cluster_id", one.cluster_id.as_str()),
    ];
    to.encode_info(&Labels { one, more: &more })
}

fn conditions(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    for condition in &one.conditions {
        for status in STATUSES {
            let more = [("type", condition.type_), ("status", status.as_str())];
            gauge(to, one, &more, (status == condition.status).into())?;
        }
    }
    Ok(())
}

fn reasons(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    for condition in &one.conditions {
        let more = [
            ("type", condition.type_),
            ("reason", condition.reason.as_str()),
        ];
        gauge(to, one, &more, 1)?;
    }
    Ok(())
}

/// Most clusters have voters alone: nine zeros less of each.
fn members(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    for (role, counts) in ROLES.iter().zip(one.members.iter().flatten()) {
        for (health, count) in HEALTHS.iter().zip(counts) {
            if *count == 0 && *role != MemberRole::Voter {
                continue;
            }
            let more = [("role", role_word(*role)), ("health", health_word(*health))];
            gauge(to, one, &more, *count)?;
        }
    }
    Ok(())
}

fn role_word(role: MemberRole) -> &'static str {
    match role {
        MemberRole::Voter => "Voter",
        MemberRole::Learner => "Learner",
        MemberRole::Standby => "Standby",
        MemberRole::Leaving => "Leaving",
    }
}

fn health_word(health: MemberHealth) -> &'static str {
    match health {
        MemberHealth::Healthy => "Healthy",
        MemberHealth::Unhealthy => "Unhealthy",
        MemberHealth::Unknown => "Unknown",
    }
}

fn lags(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    for (member, entries) in &one.lags {
        gauge(to, one, &[("member", member.as_str())], *entries)?;
    }
    Ok(())
}

fn step(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    let Some(step) = &one.step else {
        return Ok(());
    };
    let state = match step.state {
        StepState::Acting => "Acting",
        StepState::Waiting => "Waiting",
    };
    let more = [
        ("step", step.step.as_str()),
        ("state", state),
        ("reason", step.reason.as_str()),
    ];
    gauge(to, one, &more, step.began)
}

fn certificates(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    for certificate in &one.certificates {
        let more = [
            ("secret", certificate.secret.as_str()),
            ("port", certificate.port.as_str()),
        ];
        gauge(to, one, &more, certificate.ends)?;
    }
    Ok(())
}

fn phase(to: &mut MetricEncoder<'_>, one: &Figures) -> fmt::Result {
    let Some(follow) = one.follow else {
        return Ok(());
    };
    for phase in PHASES {
        let more = [("phase", phase.as_str())];
        gauge(to, one, &more, (phase == follow.phase).into())?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "clusters_test.rs"]
mod tests;
