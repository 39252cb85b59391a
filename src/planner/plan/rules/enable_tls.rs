//! TLS is enabled for a running cluster. The roll gives every member its certificates, and members accept both kinds of
//! connections on the peer port meanwhile; once all of them use TLS there, their peer URLs are changed one by one, and
//! after the last one the servers refuse connections without TLS by themselves.

use crate::crd::TlsPort;
use crate::mutants::mutant;
use crate::plan::Rule;
use crate::plan::action::{Action, MemberAction};
use crate::plan::draft::{Draft, fence};
use crate::plan::situation::Situation;
use crate::plan::step::Class;

const PLAIN: &str = "http://";

/// Whether some member of a cluster that is to have TLS is still dialled, or was started, without. If it is unknown how
/// members are dialled, the settings of their StatefulSets count; adopted members have none yet, and may have been dialled
/// in either way.
pub(in crate::plan) fn is_under_way(s: &Situation<'_>) -> bool {
    if s.cluster.spec.tls.is_none() {
        return false;
    }
    let dialled = (s.o.descriptions.values())
        .flat_map(|description| &description.members)
        .flat_map(|member| &member.peer_urls);
    let started = s.o.pods.values().any(|pod| !pod.peer_tls);
    let made = || s.o.sets.values().any(|set| set.plain_peers);
    let adopted = s.is_adopted() && s.o.status_cluster_id.is_none();
    let mut dialled = dialled.peekable();
    let silent = dialled.peek().is_none();
    started || dialled.any(|url| is_plain(url)) || silent && (adopted || made())
}

fn is_plain(url: &str) -> bool {
    url.starts_with(PLAIN)
}

pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    if s.cluster.spec.tls.is_none() || draft.held(Class::Membership) {
        return;
    }
    let seats = || s.voters.iter().chain(&s.learners);
    // A member with a foreign name is unknown to this operator, and is not cut off.
    let all_speak = seats().all(|(name, seat)| {
        let description = s.description(name).filter(|_| seat.ours);
        let security = description.and_then(|description| description.security.get(&TlsPort::Peer));
        security.is_some_and(|security| security.tls)
    });
    let plain = seats().find(|(_, seat)| seat.view.peer_urls.iter().any(|url| is_plain(url)));
    let Some((name, seat)) = plain else {
        return;
    };
    let healthy = s.voters.values().all(|seat| seat.healthy());
    if (!all_speak || !healthy) && !mutant!(PlainEndsEarly) {
        return; // the roll is on its way
    }
    let secure = |url: &String| match url.strip_prefix(PLAIN) {
        Some(rest) => format!("https://{rest}"),
        None => url.clone(),
    };
    let action = Action::Member(MemberAction::SetPeerUrls {
        member: name.clone(),
        id: seat.view.id,
        urls: seat.view.peer_urls.iter().map(secure).collect(),
        fence: fence(s),
    });
    draft.step(
        Rule::Roll,
        action,
        "every member speaks TLS on its peer port",
    );
}
