//! The first data of a cluster that is restored, or follows another one: it is not formed before its seed has the whole snapshot. A Job gives it
//! to the seed, apart from this plan, which only waits for what the seed describes.

use crate::mutants::mutant;
use crate::plan::action::FirstData;
use crate::plan::draft::Draft;
use crate::plan::observed::{Description, Staged};
use crate::plan::situation::Situation;
use crate::plan::space::bytes;

/// Whether the seed still lacks the data that its cluster is to start with.
pub(super) fn waits(
    s: &Situation<'_>,
    draft: &mut Draft,
    seed: &str,
    description: &Description,
) -> bool {
    if !s.starts_with_data() || mutant!(RestoreSkipped) {
        return false;
    }
    let Some(source) = s.source() else {
        source_gone(draft, seed);
        return true;
    };
    let staged = description.staged.as_ref();
    let followed = source.is_followed();
    let source = source.in_words();
    let job = s.o.restore.as_ref();
    let of_job = job.filter(|job| job.needs_user).map(|job| &job.message);
    let of_seed = staged.and_then(|staged| staged.problem.as_ref());
    if let Some(why) = of_seed.or(of_job) {
        let (reason, what) = match followed {
            true => ("FollowFails", "taken"),
            false => ("RestoreFails", "restored"),
        };
        draft.stall(
            reason,
            format!("{source} cannot be {what}: {why}. It is tried again, and nothing is formed before that"),
        );
    }
    if let Some(staged) = staged.filter(|staged| staged.complete) {
        return is_another(staged, followed) && another(draft, seed, followed);
    }
    let here = staged.filter(|staged| staged.received > 0);
    let here = here.map(|staged| format!("{} % of {}", percent(staged), bytes(staged.length)));
    let parts = [here, job.map(|job| job.message.clone())];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let what = match parts.is_empty() {
        true => format!("{seed} to receive {source}"),
        false => format!("{seed} to receive {source}: {}", parts.join("; ")),
    };
    let reason = if followed { "Seeding" } else { "Restoring" };
    draft.wait("Bootstrap", seed, reason, what);
    true
}

/// Whether a snapshot was taken of a living cluster although none is followed, or the other way round.
fn is_another(staged: &Staged, followed: bool) -> bool {
    followed != (staged.source_cluster != 0)
}

/// Reports a snapshot that this cluster is not formed from, whoever has sent it. Returns true: the seed lacks its data.
fn another(draft: &mut Draft, seed: &str, followed: bool) -> bool {
    let what = match followed {
        true => "was taken from no living cluster, so there is none to follow",
        false => "is that of a cluster that is to be followed, and this one follows none",
    };
    let text = format!(
        "the snapshot that {seed} has {what}: nothing is formed from it. Delete this EtcdCluster and its volume, and create it again"
    );
    draft.stall("WrongSnapshot", text);
    let what = format!("{seed} to have the right snapshot");
    draft.wait("Bootstrap", seed, "WrongSnapshot", what);
    true
}

/// Reports that nobody says which data this incarnation is to start with.
pub(super) fn source_gone(draft: &mut Draft, seed: &str) {
    let text = "the EtcdRecovery of this incarnation is gone, or there is more than one, and the cluster is not formed yet: create the one that is meant (kubectl quorate recover)";
    draft.stall("RecoveryGone", text);
    let what = "an EtcdRecovery that says which data the cluster goes on with";
    draft.wait("Bootstrap", seed, "RecoveryGone", what);
}

/// The snapshot that the cluster is formed from: the one that the seed has described.
pub(super) fn first_data(s: &Situation<'_>, description: &Description) -> Option<FirstData> {
    let source = s.source()?;
    let staged = description.staged.as_ref()?;
    Some(FirstData {
        sha256: staged.sha256.clone(),
        revision_bump: source.revision_bump(),
        follow: source.is_followed(),
    })
}

fn percent(staged: &Staged) -> u64 {
    let hundredths = u128::from(staged.received) * 100 / u128::from(staged.length.max(1));
    u64::try_from(hundredths.min(100)).unwrap_or(100)
}
