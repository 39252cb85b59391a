//! The output of `kubectl quorate recover`: what is left of a cluster that has lost its quorum, and an EtcdRecovery for
//! review. A function of what was observed and of the time. Applies nothing, and decides nothing for the operator, which
//! checks again whatever is applied.

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::remains::{Remains, Volume, remains};
use super::screen::age;
use super::table::{table, wrapped};
use crate::crd::{
    ArchivedPoint, EtcdCluster, EtcdClusterStatus, EtcdRecovery, MemberDisk, MemberRole,
    RecoveryPhase,
};

/// What was observed of a cluster that may have to be recovered.
pub(super) struct Lost {
    pub(super) cluster: EtcdCluster,
    pub(super) pods: Vec<Pod>,
    pub(super) pvcs: Vec<PersistentVolumeClaim>,
    /// `None`: not every user may see them.
    pub(super) nodes: Option<Vec<Node>>,
    pub(super) recoveries: Vec<EtcdRecovery>,
}

/// By how much revisions are raised.
const BUMP: i64 = 1_000_000_000;

/// What a plan of a recovery prints.
pub(super) struct Planned {
    /// What is left, and what is lost.
    pub(super) screen: String,
    /// The EtcdRecovery; `None`: nothing is left to recover from.
    pub(super) yaml: Option<String>,
}

/// Why there is nothing to plan; `None`: there is.
pub(super) fn refusal(lost: &Lost) -> Option<String> {
    let cluster = &lost.cluster;
    let name = cluster.name_any();
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some(format!("{name} is being deleted"));
    }
    let Some(status) = &cluster.status else {
        return Some(format!(
            "no operator has reported on {name} yet, so nothing is known of its members"
        ));
    };
    if let Some(leader) = &status.leader {
        return Some(format!(
            "{leader} leads {name} with a quorum, by the operator's last report: there is nothing to recover. Is that report old (kubectl quorate status {name}), an operator has to run first"
        ));
    }
    let now = incarnation(status);
    let mut recoveries = lost.recoveries.iter();
    let under_way = recoveries.find(|it| {
        let asked = it.spec.incarnation;
        !is_over(phase(it)) && (asked == now || asked + 1 == now)
    });
    if let Some(recovery) = under_way {
        return Some(format!(
            "EtcdRecovery {} is under way: kubectl quorate recover {name} shows it; delete it first if another one is meant",
            recovery.name_any()
        ));
    }
    if status.cluster_id.is_none() && now > 1 {
        return Some(format!(
            "incarnation {now} of {name} has no data yet: create the EtcdRecovery of incarnation {} again, with the same source or another one",
            now - 1
        ));
    }
    if status.cluster_id.is_none() {
        return Some(format!(
            "incarnation {now} of {name} was never formed: there is nothing to recover (kubectl quorate status {name})"
        ));
    }
    if cluster.spec.replicas == 0 {
        return Some(format!(
            "{name} hibernates: set spec.replicas, and wait for its members"
        ));
    }
    let members = remains(lost, now);
    let voters = members.iter().filter(|it| it.role == MemberRole::Voter);
    let all = voters.clone().count();
    let answer = voters.filter(|it| it.disk.is_some()).count();
    (answer > all / 2).then(|| {
        format!("{answer} of the {all} members of {name} answer, which is a quorum: nothing is lost. See why they elect no leader (kubectl quorate status {name}; kubectl logs)")
    })
}

/// What is left of a cluster, and the EtcdRecovery that keeps as much as possible of it.
pub(super) fn plan(lost: &Lost, now: Timestamp) -> Planned {
    let none = EtcdClusterStatus::default();
    let status = lost.cluster.status.as_ref().unwrap_or(&none);
    let members = remains(lost, incarnation(status));
    let mut lines = head(lost, status, &members);
    lines.push(String::new());
    lines.extend(drawn(&members, now));
    lines.push(String::new());
    let longest = longest(&members);
    lines.extend(keeps((status, &members), longest, now));
    lines.extend(backup(status, longest.is_some(), now));
    let yaml = yaml(lost, status, longest, now);
    lines.extend(wrapped(
        "REVIEW    ",
        match &yaml {
            Some(_) => {
                "save what follows (-o yaml prints it alone), review it, set acceptLoss to true and apply it with kubectl apply -f. Nothing was applied, and the operator checks all of it again."
            }
            None => {
                "there is nothing to recover from: no member can be used, and there is no good backup. Bring a member back, or name a snapshot in a store with spec.restore {storeRef, path}."
            }
        },
    ));
    lines.push(String::new());
    Planned {
        screen: lines.join("\n"),
        yaml,
    }
}

/// The EtcdRecoveries of a cluster.
pub(super) fn list(lost: &Lost, now: Timestamp) -> String {
    let name = lost.cluster.name_any();
    if lost.recoveries.is_empty() {
        let words = format!(
            "There is no EtcdRecovery of {name}. With --plan one is written for review, if the cluster has lost its quorum."
        );
        return wrapped("", &words).join("\n") + "\n";
    }
    let titles = ["RECOVERY", "PHASE", "INCARNATION", "AGE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for recovery in &lost.recoveries {
        let created = recovery.metadata.creation_timestamp.as_ref();
        rows.push(vec![
            recovery.name_any(),
            format!("{:?}", phase(recovery)),
            format!(
                "{} to {}",
                recovery.spec.incarnation,
                recovery.spec.incarnation + 1
            ),
            created.map_or("-".to_owned(), |at| age(at.0, now)),
        ]);
    }
    let mut drawn = table(&rows).into_iter();
    let mut lines: Vec<String> = drawn.next().into_iter().collect();
    for (line, recovery) in drawn.zip(&lost.recoveries) {
        lines.push(line);
        if let Some(source) = recovery.spec.source() {
            lines.push(format!("  from {}", source.in_words()));
        }
        let status = recovery.status.as_ref();
        let message = status.and_then(|status| status.message.as_deref());
        let none = "no operator has reported on it yet";
        lines.extend(wrapped("  ", message.unwrap_or(none)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn phase(recovery: &EtcdRecovery) -> RecoveryPhase {
    let status = recovery.status.as_ref();
    status.map(|status| status.phase).unwrap_or_default()
}

fn is_over(phase: RecoveryPhase) -> bool {
    matches!(phase, RecoveryPhase::Recovered | RecoveryPhase::Refused)
}

/// The current incarnation.
fn incarnation(status: &EtcdClusterStatus) -> i64 {
    status.incarnation.unwrap_or(1).max(1)
}

fn head(lost: &Lost, status: &EtcdClusterStatus, members: &[Remains]) -> Vec<String> {
    let namespace = lost.cluster.namespace().unwrap_or_default();
    let name = lost.cluster.name_any();
    let number = incarnation(status);
    let voters = members.iter().filter(|it| it.role == MemberRole::Voter);
    let voters = voters.count();
    let answer = members.iter().filter(|it| it.disk.is_some()).count();
    let mut lines = vec![format!(
        "CLUSTER   {namespace}/{name}, incarnation {number}"
    )];
    let words = format!(
        "no leader with a quorum is seen: {answer} of {voters} members say what they hold, and a quorum is {}",
        voters / 2 + 1
    );
    lines.extend(wrapped("QUORUM    ", &words));
    lines
}

fn drawn(members: &[Remains], now: Timestamp) -> Vec<String> {
    let titles = ["MEMBER", "LAST ENTRY", "WRITTEN", "VOLUME", "POD", "NODE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for member in members {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let disk = member.disk.as_ref();
        rows.push(vec![
            member.name.clone(),
            or_dash(disk.map(entry)),
            or_dash(disk.and_then(|disk| written(disk, now))),
            member.volume.words().to_owned(),
            member.pod.clone().unwrap_or_else(|| "none".to_owned()),
            or_dash(member.node.as_ref().map(ToString::to_string)),
        ]);
    }
    let mut drawn = table(&rows).into_iter();
    let mut lines: Vec<String> = drawn.next().into_iter().collect();
    for (line, member) in drawn.zip(members) {
        lines.push(line);
        let disk = member.disk.as_ref();
        lines.extend(disk.map(|disk| {
            let corrupt = if disk.corrupt {
                ", named by the alarm CORRUPT"
            } else {
                ""
            };
            format!("  disk {}{corrupt}", disk.disk_uuid)
        }));
    }
    lines
}

fn entry(disk: &MemberDisk) -> String {
    format!("term {}, index {}", disk.term, disk.index)
}

fn written(disk: &MemberDisk, now: Timestamp) -> Option<String> {
    let at: Timestamp = disk.last_append_time.as_ref()?.parse().ok()?;
    Some(format!("{} ago", age(at, now)))
}

/// The member with the longest log, of those that say what they hold. One whose volume is about to go is none of them, nor
/// one that the alarm CORRUPT names: the operator refuses it.
fn longest(members: &[Remains]) -> Option<(&Remains, &MemberDisk)> {
    let stays = members.iter().filter(|it| it.volume == Volume::There);
    let known = stays.filter_map(|it| Some((it, it.disk.as_ref()?)));
    let known = known.filter(|(_, disk)| !disk.corrupt);
    // Of equal ones the first.
    known.rev().max_by_key(|(_, disk)| (disk.term, disk.index))
}

/// Who holds the most, and what is lost without the others.
fn keeps(
    (status, members): (&EtcdClusterStatus, &[Remains]),
    longest: Option<(&Remains, &MemberDisk)>,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = Vec::new();
    match longest {
        Some((member, disk)) => {
            let at = written(disk, now).map_or(String::new(), |at| format!(", written {at}"));
            let words = format!(
                "{}: its log is the longest that is known, and ends at {}{at}",
                member.name,
                entry(disk)
            );
            lines.extend(wrapped("KEEPS     ", &words));
        }
        None => {
            // Of whoever stays and says what it holds, one that the alarm does not name would be the longest.
            let corrupt = |it: &Remains| {
                it.volume == Volume::There && it.disk.as_ref().is_some_and(|disk| disk.corrupt)
            };
            let words = match members.iter().any(corrupt) {
                true => {
                    "nobody whose data can be trusted: the alarm CORRUPT names the members whose volume stays and that say what they hold"
                }
                false => "no member whose volume stays says what its disk holds",
            };
            lines.extend(wrapped("KEEPS     ", words));
        }
    }
    let silent = |it: &&Remains| it.disk.is_none() && it.may_hold_data();
    let silent: Vec<&Remains> = members.iter().filter(silent).collect();
    let words = match (silent.is_empty(), longest.is_some()) {
        (true, true) => {
            "what was written after that, and is on lost volumes alone: the volume of every other member is gone"
        }
        (false, true) => {
            "what was written after that. Members that do not answer may hold more, or together be a quorum: bring them back first, if that is possible"
        }
        (false, false) => "everything since SOURCE, unless a member comes back: try that first",
        (true, false) => "everything since SOURCE",
    };
    let source = match archived(status) {
        Some(archived) => format!("the end of the archive ({})", archived.time.0),
        None => "the backup".to_owned(),
    };
    lines.extend(wrapped("LOSES     ", &words.replace("SOURCE", &source)));
    for member in silent {
        let head = format!("          {}: ", member.name);
        lines.extend(wrapped(&head, &member.way_back()));
    }
    let gone = members.iter().filter(|it| it.volume != Volume::There);
    let gone: Vec<&str> = gone.map(|it| it.name.as_str()).collect();
    if !gone.is_empty() {
        let words = format!("without a volume, and gone for good: {}", gone.join(", "));
        lines.extend(wrapped("          ", &words));
    }
    lines
}

fn backup(status: &EtcdClusterStatus, survives: bool, now: Timestamp) -> Vec<String> {
    let backups = status.backup.as_ref();
    let Some(last) = backups.and_then(|it| it.last_success.as_ref()) else {
        return wrapped("BACKUP    ", "none that is good is known");
    };
    let (archive, at) = match archived(status) {
        Some(archived) => (
            format!(
                ", with the archive behind it to {} ago ({})",
                age(archived.time.0, now),
                archived.time.0
            ),
            ", at: {latest: true}",
        ),
        None => (String::new(), ""),
    };
    let instead = if survives {
        format!(
            ". To use it in place of the member, give spec.restore {{backupRef: {{name: {}}}{at}}} and no spec.survivor",
            last.name
        )
    } else {
        String::new()
    };
    let words = format!(
        "EtcdBackup {} of {} ago ({}), revision {}{archive}{instead}",
        last.name,
        age(last.time.0, now),
        last.time.0,
        last.revision
    );
    wrapped("BACKUP    ", &words)
}

/// The end of the archive, where it goes on behind the newest backup.
fn archived(status: &EtcdClusterStatus) -> Option<&ArchivedPoint> {
    let backups = status.backup.as_ref()?;
    let last = backups.last_success.as_ref()?;
    let archived = backups.archived.as_ref()?;
    let behind = archived.time.0 > last.time.0 && last.url.as_ref() == Some(&archived.url);
    behind.then_some(archived)
}

/// A name as YAML: quoted where it would not be a text, such as a number.
fn scalar(text: &str) -> String {
    let plain = serde_saphyr::from_str::<serde_json::Value>(text);
    match plain {
        Ok(serde_json::Value::String(read)) if read == text => text.to_owned(),
        _ => format!("{text:?}"),
    }
}

/// The EtcdRecovery for review.
fn yaml(
    lost: &Lost,
    status: &EtcdClusterStatus,
    longest: Option<(&Remains, &MemberDisk)>,
    now: Timestamp,
) -> Option<String> {
    let cluster = &lost.cluster;
    let name = cluster.name_any();
    let number = incarnation(status);
    let backup = status
        .backup
        .as_ref()
        .and_then(|it| it.last_success.as_ref());
    let (source, from) = match (longest, backup) {
        (Some((member, disk)), _) => {
            let source = format!(
                "  survivor:\n    member: {}\n    expect:\n      diskUUID: \"{}\"\n      term: {}\n      index: {}\n    revisionBump: {BUMP}\n",
                scalar(&member.name),
                disk.disk_uuid,
                disk.term,
                disk.index
            );
            let from = format!("{}, whose log ends at {}", member.name, entry(disk));
            (source, from)
        }
        (None, Some(last)) => {
            let archived = archived(status);
            let moment = archived.map_or("", |_| "    at:\n      latest: true\n");
            let source = format!(
                "  restore:\n    backupRef:\n      name: {}\n{moment}    revisionBump: {BUMP}\n",
                scalar(&last.name)
            );
            let from = format!("EtcdBackup {} of {}", last.name, last.time.0);
            let from = match archived {
                Some(archived) => format!("{from} and the archive to {}", archived.time.0),
                None => from,
            };
            (source, from)
        }
        (None, None) => return None,
    };
    let at = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let comment = comment(&format!(
        "{name} goes on as incarnation {} with the data of {from}. Planned {at}. Every other former member is stopped for good; no volume is deleted.",
        number + 1
    ));
    let namespace = cluster.namespace().unwrap_or_default();
    let uid = cluster.life();
    let recovery = scalar(&free_name(lost, number + 1));
    let (name, namespace) = (scalar(&name), scalar(&namespace));
    Some(format!(
        "{comment}apiVersion: quorate.dev/v1alpha1\nkind: EtcdRecovery\nmetadata:\n  name: {recovery}\n  namespace: {namespace}\nspec:\n  clusterRef:\n    name: {name}\n  clusterUID: \"{uid}\"\n  incarnation: {number}\n{source}  # Set it to true once what only the lost members hold may be lost.\n  acceptLoss: false\n"
    ))
}

fn comment(words: &str) -> String {
    let lines = wrapped("  ", words);
    let lines = lines
        .iter()
        .map(|line| format!("# {}\n", line.trim_start()));
    lines.collect()
}

/// A name that no EtcdRecovery of the cluster has: a refused one keeps its own.
fn free_name(lost: &Lost, incarnation: i64) -> String {
    let first = format!("{}-incarnation-{incarnation}", lost.cluster.name_any());
    let taken = |name: &str| lost.recoveries.iter().any(|it| it.name_any() == name);
    if !taken(&first) {
        return first;
    }
    let others = (2..=lost.recoveries.len() + 1).map(|number| format!("{first}-{number}"));
    // As many names as there are recoveries, and one more: one of them is free.
    let mut others = others.filter(|name| !taken(name));
    others.next().unwrap_or(first)
}
