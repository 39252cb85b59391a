//! Which version may follow the running one. One minor version at a time, as in etcd, so that the versions of two
//! members are never further apart; and back for as long as an older version can read the members' disks, which they
//! report themselves. A refused version is refused before a pod is touched: until the spec is corrected, nothing is
//! created from it, neither for healing nor for scaling up from 0. What an image contains is what its first server reports,
//! and never read from its tag or digest.

use crate::mutants::mutant;
use crate::plan::draft::Draft;
use crate::plan::situation::{Situation, quorum};
use crate::plan::step::Class;

/// Major, minor and patch number, and whether it is a release rather than on the way to one.
type Version = (u64, u64, u64, bool);

/// A member and its description.
struct Runs<'a> {
    member: &'a str,
    version: Version,
    text: &'a str,
    /// The oldest version that can read its disk, as reported; its own minor version if it reports none.
    readable: Version,
    /// Made from the spec as it is.
    updated: bool,
    /// It has never held anything: whatever comes next can read that.
    empty: bool,
}

/// Whether the wanted version cannot follow, and the plan ends here.
pub(super) fn refused(s: &Situation<'_>, draft: &mut Draft) -> bool {
    let runs = running(s);
    let why = match &s.cluster.spec.image {
        None if is_as_made(s) => by_drift(s, &runs, draft),
        None => by_name(s, &runs).or_else(|| by_content(s, &runs)),
        Some(image) => by_trial(s, &runs, image),
    };
    let Some(why) = why else { return false };
    for class in [Class::Membership, Class::Disruption, Class::Objects] {
        draft.hold(class, "the wanted version is refused");
    }
    draft.stall("VersionRefused", why);
    true
}

/// Why the version that the spec names cannot follow, if it names one and it cannot.
pub(super) fn why_by_name(s: &Situation<'_>) -> Option<String> {
    let named = s.cluster.spec.image.is_none() && !is_as_made(s);
    named.then(|| by_name(s, &running(s))).flatten()
}

/// Without `spec.image` the spec states the next version.
fn by_name(s: &Situation<'_>, runs: &[Runs<'_>]) -> Option<String> {
    let text = s.cluster.spec.version.as_str();
    let wanted = parsed(text)?;
    let same = runs
        .iter()
        .filter(|one| minor(one.version) == minor(wanted));
    let same = same.filter(|one| s.voters.contains_key(one.member));
    // Back to what most members run, whatever an image brought to the others: as far as their disks can be read.
    let back = same.count() >= quorum(s.voters.len());
    let refusal = runs.iter().filter(|one| !one.empty).find_map(|one| {
        let why = match back {
            true => unreadable(one, wanted),
            false => follows(one, wanted),
        }?;
        let (member, runs) = (one.member, one.text);
        Some(format!(
            "{text} is not allowed while {member} runs {runs}: {why}"
        ))
    });
    // For hibernating members, only the last reported status is known.
    let slept =
        s.o.status_memory
            .version
            .as_deref()
            .filter(|_| runs.is_empty());
    let refusal = refusal.or_else(|| {
        let slept_text = slept?;
        let version = parsed(slept_text)?;
        let one = Runs {
            member: "",
            version,
            text: slept_text,
            readable: minor(version),
            updated: false,
            empty: false,
        };
        let mut why = follows(&one, wanted)?;
        if wanted < one.readable {
            why = format!(
                "members must run to report which versions can read their disks: start them with {slept_text}, then change the version"
            );
        }
        Some(format!(
            "{text} is not allowed after {slept_text}, which the members ran: {why}"
        ))
    });
    refusal.map(|why| format!("{why}. Nothing is changed until spec.version is corrected"))
}

/// The image of a version contains what its servers report, whatever it is called. If that is of another minor version
/// than the spec's, which the running ones were compared with, no other member gets it.
fn by_content(s: &Situation<'_>, runs: &[Runs<'_>]) -> Option<String> {
    mutant!(VersionOnTrust => return None);
    let text = s.cluster.spec.version.as_str();
    let wanted = minor(parsed(text)?);
    let (other, rest): (Vec<_>, Vec<_>) = runs
        .iter()
        .partition(|one| one.updated && minor(one.version) != wanted);
    let voters = other.iter().filter(|one| s.voters.contains_key(one.member));
    // If most members run it, or all, there is nobody left to keep it from.
    if rest.is_empty() || voters.count() >= quorum(s.voters.len()) {
        return None;
    }
    let one = other.first()?;
    Some(format!(
        "{}. No other member gets it: set spec.image to one that contains {text}, or spec.version back",
        contains(text, one)
    ))
}

/// Where every member was made from the spec as it is, nobody asks for anything: if one runs another minor version than the
/// spec's, a tag was moved, and that member has started again since. Lost members are replaced as ever, as far as what
/// comes of that may run beside the others.
fn by_drift(s: &Situation<'_>, runs: &[Runs<'_>], draft: &mut Draft) -> Option<String> {
    let text = s.cluster.spec.version.as_str();
    let wanted = minor(parsed(text)?);
    let moved = || runs.iter().filter(|one| minor(one.version) != wanted);
    let image = format!("name an image of {text} by its digest in spec.image");
    let one = moved().next()?;
    let apart = moved().find_map(|new| {
        let mut others = runs.iter().filter(|old| !old.empty);
        others.find_map(|old| Some((new, old, follows(old, new.version)?)))
    });
    let Some((new, old, why)) = apart else {
        draft.note(
            "ImageMoved",
            format!(
                "{}: a tag was moved, or never was of that version. For it to be {text}, {image}; or set spec.version to {}",
                contains(text, one),
                one.text
            ),
        );
        return None;
    };
    Some(format!(
        "{}, which may not run beside {} of {} ({why}): its tag was moved. No member is created from it: {image}",
        contains(text, new),
        old.text,
        old.member
    ))
}

fn contains(text: &str, one: &Runs<'_>) -> String {
    let (found, by) = (one.text, one.member);
    format!("the image of {text} contains version {found} (reported by {by})")
}

/// Whether every member that has a pod, or a set that will make one, was made from the spec as it is, and one runs.
fn is_as_made(s: &Situation<'_>) -> bool {
    mutant!(DriftStopsHealing => return false);
    let wanted = Some(&s.o.wanted_inputs);
    let of_pods = s.o.pods.keys().map(|name| s.started_with(name));
    let without =
        s.o.sets
            .iter()
            .filter(|(name, _)| !s.o.pods.contains_key(*name));
    let of_sets = without.map(|(_, set)| set.inputs.as_ref());
    let mut all = of_pods.chain(of_sets);
    let runs =
        s.o.descriptions
            .keys()
            .any(|name| s.description(name).is_some());
    runs && all.all(|inputs| inputs == wanted)
}

/// The version of an image is known when it runs: from the first member that was created from it. No other member gets
/// it, and that one runs on the previous image again.
fn by_trial(s: &Situation<'_>, runs: &[Runs<'_>], image: &str) -> Option<String> {
    let voters = s.voters.len();
    let updated = runs
        .iter()
        .filter(|one| one.updated && s.voters.contains_key(one.member));
    // If most members run it already, the others are the ones that are being rolled back.
    if updated.count() >= quorum(voters) {
        return None;
    }
    let new = || runs.iter().filter(|one| one.updated);
    let old = || runs.iter().filter(|one| !one.updated && !one.empty);
    let (new, old, why) = new()
        .flat_map(|new| old().map(move |old| (new, old)))
        .find_map(|(new, old)| {
            // Back to what most members run, whatever came to the others.
            let same = runs
                .iter()
                .filter(|one| minor(one.version) == minor(new.version));
            let why = match same.count() >= quorum(voters.max(runs.len())) {
                true => unreadable(old, new.version),
                false => follows(old, new.version),
            };
            Some((new, old, why?))
        })?;
    Some(format!(
        "the image {image} contains version {} (reported by {}), which is not allowed after {} of {}: {why}. No other member gets it: revert spec.image",
        new.text, new.member, old.text, old.member
    ))
}

/// Why a version cannot follow the one that a member runs, if it cannot.
fn follows(one: &Runs<'_>, wanted: Version) -> Option<String> {
    mutant!(VersionJump => return None);
    let (now, next) = ((one.version.0, one.version.1), (wanted.0, wanted.1));
    if now == next {
        return None;
    }
    let new_major = next == (now.0 + 1, 0);
    if now.0 != next.0 && !new_major || now.0 == next.0 && now.1.abs_diff(next.1) > 1 {
        return Some("change one minor version at a time".to_owned());
    }
    unreadable(one, wanted)
}

/// Why a version cannot take a member's disk over, if it cannot.
fn unreadable(one: &Runs<'_>, wanted: Version) -> Option<String> {
    let oldest = one.readable;
    let newer = wanted < oldest && minor(wanted) != minor(one.version);
    newer.then(|| {
        format!(
            "its disk can be read only by {}.{}.{} and later; to go back further, restore a snapshot",
            oldest.0, oldest.1, oldest.2
        )
    })
}

fn running<'a>(s: &Situation<'a>) -> Vec<Runs<'a>> {
    let all = s.o.descriptions.keys();
    let all = all.filter_map(|name| Some((name, s.description(name)?)));
    all.filter_map(|(name, description)| {
        let version = parsed(&description.version)?;
        let readable = description.readable_since.as_deref().and_then(parsed);
        Some(Runs {
            member: name,
            version,
            text: &description.version,
            readable: readable.unwrap_or(minor(version)),
            updated: s.updated(name),
            empty: description.disk_empty,
        })
    })
    .collect()
}

/// The first of its minor version: patches of one write alike.
fn minor(version: Version) -> Version {
    (version.0, version.1, 0, false)
}

/// `None` for what is no version: of that nothing is known, and nothing refused.
fn parsed(text: &str) -> Option<Version> {
    let (numbers, rest) = match text.split_once('-') {
        Some((numbers, rest)) => (numbers, Some(rest)),
        None => (text, None),
    };
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let version = (
        parts.next()??,
        parts.next()??,
        parts.next()??,
        rest.is_none(),
    );
    parts.next().is_none().then_some(version)
}
