//! Which incarnation of the cluster is the current one. A recovery makes the next one, with members of its own under new
//! names; what is left of earlier ones is sorted out of the facts, so that no rule takes it for a member. Decides nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::observed::{Description, Earlier, Observed, Phase, RecoveryFacts};
use super::situation::FRESH_MS;
use crate::crd::{ValidatedCluster, member_number};

/// The number of the current incarnation, and the facts with earlier members apart.
pub(super) fn current<'a>(o: &'a Observed, cluster: &ValidatedCluster) -> (u64, Cow<'a, Observed>) {
    let number = number(o, cluster);
    if number <= 1 {
        return (1, Cow::Borrowed(o));
    }
    let first = first(o, cluster, number);
    (number, Cow::Owned(apart(o.clone(), cluster, number, first)))
}

/// The incarnation of a leader with a quorum, whatever is written in objects: a recovery never begins beside one. Without
/// one, the incarnation that the identity Secret or a formed member names. Labels of PVCs, the status and what was done
/// for recoveries count only without the Secret: then a next incarnation may have begun of which no member is formed, or
/// every volume of the current one may be gone.
fn number(o: &Observed, cluster: &ValidatedCluster) -> u64 {
    let leads = |d: &&Description| d.leads && d.phase == Phase::Member && d.age_ms <= FRESH_MS;
    let leading = formed(o, cluster).map(|(_, description)| description);
    let leading = leading.filter(leads).map(|leader| leader.incarnation);
    if let Some(number) = leading.max() {
        return number.max(1);
    }
    let secret = o.identity_secret.as_ref();
    let secret = secret.filter(|secret| secret.cluster_uid == cluster.life);
    let formed = formed(o, cluster).map(|(_, description)| description.incarnation);
    let named = secret.map(|secret| secret.incarnation).or_else(|| {
        let ours = |uid: &Option<String>| uid.as_deref() == Some(cluster.life.as_str());
        let pvcs = o.pvcs.values().filter(|pvc| ours(&pvc.cluster_uid));
        let labelled = pvcs.map(|pvc| pvc.incarnation);
        let recovered = o.recoveries.iter().filter_map(|it| known_by(it, cluster));
        labelled.chain(recovered).chain(o.status_incarnation).max()
    });
    formed.chain(named).max().unwrap_or(1).max(1)
}

/// The incarnation that there was at least, by what was done for a recovery.
fn known_by(recovery: &RecoveryFacts, cluster: &ValidatedCluster) -> Option<u64> {
    let lost = u64::try_from(recovery.spec.incarnation).ok()?;
    let ours = recovery.spec.cluster_uid == cluster.life && recovery.begun;
    ours.then(|| lost + u64::from(recovery.recovered))
}

/// The members of this cluster that describe themselves, with proof.
fn formed<'a>(
    o: &'a Observed,
    cluster: &'a ValidatedCluster,
) -> impl Iterator<Item = (&'a String, &'a Description)> {
    o.descriptions.iter().filter(|(_, description)| {
        description.cluster_id != 0
            && !description.unsigned
            && description.cluster_uid.as_deref() == Some(cluster.life.as_str())
    })
}

/// The lowest number of a member of this incarnation: names are never used again, so every earlier one is lower.
fn first(o: &Observed, cluster: &ValidatedCluster, number: u64) -> u64 {
    let of_name = |name: &str| member_number(&cluster.name, name);
    let secret = o.identity_secret.as_ref();
    let secret = secret.filter(|it| it.cluster_uid == cluster.life && it.incarnation == number);
    if let Some(seed) = secret.and_then(|secret| of_name(&secret.seed)) {
        return seed;
    }
    let formed = formed(o, cluster).filter(|(_, description)| description.incarnation == number);
    let described = formed.flat_map(|(name, description)| {
        let members = description.members.iter().map(|member| &member.name);
        let gone = description.tombstones.iter().map(|(_, name)| name);
        std::iter::once(name).chain(members).chain(gone)
    });
    let labelled = o.pvcs.values().filter(|pvc| {
        pvc.incarnation == number && pvc.cluster_uid.as_deref() == Some(cluster.life.as_str())
    });
    let labelled = labelled.filter_map(|pvc| pvc.member.as_ref());
    let of_status = o.status_incarnation == Some(number);
    let voters = o.status_memory.voters.iter().filter(|_| of_status);
    let names = described.chain(labelled).chain(voters);
    // Nobody is of an incarnation that nobody is known of.
    names
        .filter_map(|name| of_name(name))
        .min()
        .unwrap_or(u64::MAX)
}

fn apart(mut o: Observed, cluster: &ValidatedCluster, number: u64, first: u64) -> Observed {
    let is_earlier = |name: &str| member_number(&cluster.name, name).is_some_and(|n| n < first);
    o.earlier = Earlier {
        sets: taken(&mut o.sets, |name, _| is_earlier(name)),
        pods: taken(&mut o.pods, |name, _| is_earlier(name)),
        descriptions: taken(&mut o.descriptions, |name, _| is_earlier(name)),
        pvcs: taken(&mut o.pvcs, |_, pvc| {
            let ours = pvc.cluster_uid.as_deref() == Some(cluster.life.as_str());
            // By its label too: a volume that somebody brings back has a name that was not known of.
            let before = pvc.incarnation > 0 && pvc.incarnation < number;
            ours && (before || pvc.member.as_deref().is_some_and(is_earlier))
        }),
    };
    o.status_memory.voters.retain(|name| !is_earlier(name));
    o.status_memory.restarts.retain(|name, _| !is_earlier(name));
    // What was written of the incarnation before is no proof that this one was formed.
    if o.status_incarnation != Some(number) {
        o.status_cluster_id = None;
        o.status_memory.restore = None;
    }
    o
}

/// Takes these entries out of a map.
fn taken<V>(
    map: &mut BTreeMap<String, V>,
    which: impl Fn(&str, &V) -> bool,
) -> BTreeMap<String, V> {
    let (out, stay) = std::mem::take(map)
        .into_iter()
        .partition(|(name, value)| which(name, value));
    *map = stay;
    out
}
