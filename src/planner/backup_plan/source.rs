//! The deletion of a cluster that follows another one: a finalizer keeps the resource until the followed cluster is not
//! closed to writes any more, since only the members here and a Job of theirs can open it. Decides about that finalizer
//! alone. Never lets go in silence of a cluster that may leave another one closed.

use jiff::{SignedDuration, Timestamp};

use super::deletion::DeletionWait;
use crate::crd::ANNOTATION_LEAVE_CLOSED;

/// So long a leader is waited for, and nobody has to do anything.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// What the cluster's own reconcile has seen of the followed cluster since the deletion was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceStanding {
    /// It is not closed by this cluster, and will not be; or its place was taken.
    Settled,
    /// A leader with a quorum says that it is closed, or a Job may still close it.
    #[default]
    Pending,
    /// No leader with a quorum says anything.
    Unseen,
}

/// A cluster whose deletion may leave another one closed to writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedSource {
    /// Its name.
    pub cluster: String,
    /// The followed cluster, in words.
    pub source: String,
    /// It follows that one, as far as its status says.
    pub follows: bool,
    /// The finalizer is there.
    pub held: bool,
    /// When the deletion was asked for, if it was.
    pub deleting: Option<Timestamp>,
    /// Kubernetes deletes the members before the resource: `--cascade=foreground`.
    pub foreground: bool,
    /// It was ever formed.
    pub formed: bool,
    /// The user does not care whether the followed cluster stays closed, by the annotation.
    pub waived: bool,
    /// No cutover was ever asked for.
    pub never_closes: bool,
    /// What was seen.
    pub standing: SourceStanding,
    /// The followed cluster was closed when that was last seen.
    pub closed: bool,
    /// Now.
    pub now: Timestamp,
}

/// Why this finalizer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceLetGo {
    /// It follows none any more, or the followed cluster is open.
    Settled,
    /// The annotation says so.
    Waived,
    /// The members are being deleted already.
    MembersGo,
    /// No leader was seen for too long.
    Unseen,
}

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceStep {
    /// Add the finalizer.
    Hold,
    /// Remove it.
    LetGo(SourceLetGo),
}

/// What to do, and what the cluster's status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePlan {
    /// At most one write.
    pub step: Option<SourceStep>,
    /// What the deletion waits for; `None`: for nothing of this.
    pub waits: Option<DeletionWait>,
}

impl SourceLetGo {
    /// What the event says; `None`: there is nothing to say.
    #[must_use]
    pub fn in_words(self, observed: &ObservedSource) -> Option<String> {
        let why = match self {
            Self::Settled => return None,
            Self::Waived => format!("the annotation {ANNOTATION_LEAVE_CLOSED} asks for it"),
            Self::MembersGo => {
                "with --cascade=foreground Kubernetes deletes the members first".to_owned()
            }
            Self::Unseen => "no leader with a quorum was seen".to_owned(),
        };
        let is = match observed.closed {
            true => "is",
            false => "may be",
        };
        // The endpoints last: a long event is cut off.
        Some(format!(
            "deleted without opening the followed cluster, which {is} closed to writes by a cutover that was under way: {why}. If that has raised its alarms, and once no member of this cluster runs any more, open it there: etcdctl alarm disarm. It is {}",
            observed.source
        ))
    }
}

/// Decides about the finalizer.
#[must_use]
pub fn plan_source(o: &ObservedSource) -> SourcePlan {
    let step = |step| SourcePlan {
        step: Some(step),
        waits: None,
    };
    let let_go = |why| step(SourceStep::LetGo(why));
    let Some(asked) = o.deleting else {
        return match (o.follows, o.held) {
            (true, false) => step(SourceStep::Hold),
            (false, true) => let_go(SourceLetGo::Settled),
            _ => SourcePlan::default(),
        };
    };
    if !o.held {
        return SourcePlan::default();
    }
    let patient = o.now.duration_since(asked) < PATIENCE;
    if !o.follows || !o.formed || o.never_closes || o.standing == SourceStanding::Settled {
        return let_go(SourceLetGo::Settled);
    }
    if o.waived {
        return let_go(SourceLetGo::Waived);
    }
    if o.foreground {
        return let_go(SourceLetGo::MembersGo);
    }
    match o.standing {
        SourceStanding::Settled => let_go(SourceLetGo::Settled),
        SourceStanding::Unseen if !patient => let_go(SourceLetGo::Unseen),
        SourceStanding::Unseen => waits(o, "a leader with a quorum to say", patient),
        SourceStanding::Pending => waits(o, "its Job to end or to show", patient),
    }
}

fn waits(o: &ObservedSource, whom: &str, patient: bool) -> SourcePlan {
    let message = match patient {
        true => format!("{whom} that {} is not closed to writes", o.source),
        false => format!(
            "{} may be closed to writes by a cutover that was under way, and a Job of this cluster has not opened it yet: correct what status.follow says. If it does not matter, because that cluster is gone or is opened by hand: kubectl annotate etcdcluster {} {ANNOTATION_LEAVE_CLOSED}=true",
            o.source, o.cluster
        ),
    };
    SourcePlan {
        step: None,
        waits: Some(DeletionWait {
            message,
            needs_user: !patient,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A standby that was seen open, and one that moves and was never to be cut over, go without a word: who is told to
    /// disarm alarms might disarm others.
    #[test]
    fn nobody_is_warned_of_what_was_never_closed() {
        for o in [
            ObservedSource {
                standing: SourceStanding::Settled,
                ..deleted()
            },
            ObservedSource {
                never_closes: true,
                standing: SourceStanding::Unseen,
                ..deleted()
            },
        ] {
            let foreground = ObservedSource {
                foreground: true,
                ..o
            };
            let plan = plan_source(&foreground);
            assert_eq!(plan.step, Some(SourceStep::LetGo(SourceLetGo::Settled)));
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn deleted() -> ObservedSource {
        ObservedSource {
            cluster: "demo".into(),
            source: "the cluster at https://etcd-0.etcd:2379".into(),
            follows: true,
            held: true,
            deleting: Some(at(0)),
            formed: true,
            now: at(10),
            ..ObservedSource::default()
        }
    }

    /// Every combination of what can be observed, as a table would have it.
    #[test]
    fn no_cluster_is_left_closed_in_silence() {
        let all = [
            SourceStanding::Settled,
            SourceStanding::Pending,
            SourceStanding::Unseen,
        ];
        for bits in 0..256_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            for standing in all {
                let o = ObservedSource {
                    follows: bit(0),
                    held: bit(1),
                    deleting: bit(2).then(|| at(0)),
                    foreground: bit(3),
                    formed: bit(4),
                    waived: bit(5),
                    closed: bit(6),
                    now: if bit(7) { at(10) } else { at(3_600) },
                    standing,
                    ..deleted()
                };
                let plan = plan_source(&o);
                match plan.step {
                    Some(SourceStep::Hold) => {
                        assert!(o.follows && !o.held && o.deleting.is_none())
                    }
                    Some(SourceStep::LetGo(why)) => {
                        assert!(o.held, "{o:?}");
                        let settled =
                            !o.follows || !o.formed || standing == SourceStanding::Settled;
                        assert_eq!(why.in_words(&o).is_none(), why == SourceLetGo::Settled);
                        assert!(why != SourceLetGo::Settled || settled, "{o:?}");
                        assert!(o.deleting.is_some() || !o.follows, "{o:?}");
                        let unseen = standing == SourceStanding::Unseen && !bit(7);
                        assert!(why != SourceLetGo::Unseen || unseen, "{o:?}");
                    }
                    None => {
                        let waits = o.held && o.deleting.is_some();
                        assert_eq!(plan.waits.is_some(), waits, "{o:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_holds_it_up_says_what_to_do() {
        let first = plan_source(&deleted()).waits.expect("it waits");
        assert!(!first.needs_user, "{}", first.message);
        let later = ObservedSource {
            now: at(200),
            ..deleted()
        };
        let waits = plan_source(&later).waits.expect("it waits");
        assert!(waits.needs_user);
        let words = "kubectl annotate etcdcluster demo quorate.dev/leave-source-closed=true";
        assert!(waits.message.contains(words), "{}", waits.message);
        let lost = ObservedSource {
            standing: SourceStanding::Unseen,
            closed: true,
            ..later
        };
        let why = SourceLetGo::Unseen;
        assert_eq!(plan_source(&lost).step, Some(SourceStep::LetGo(why)));
        let event = why.in_words(&lost).expect("an event");
        assert!(event.contains("which is closed to writes"), "{event}");
        assert!(event.contains("etcdctl alarm disarm"), "{event}");
    }
}
