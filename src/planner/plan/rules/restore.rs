//! The first data of a cluster that is restored: it is not formed before its seed has the whole snapshot. A Job gives it
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
    let source = source.in_words();
    let job = s.o.restore.as_ref();
    let of_job = job.filter(|job| job.needs_user).map(|job| &job.message);
    let of_seed = staged.and_then(|staged| staged.problem.as_ref());
    if let Some(why) = of_seed.or(of_job) {
        draft.stall(
            "RestoreFails",
            format!("{source} cannot be restored: {why}. It is tried again, and nothing is formed before that"),
        );
    }
    if staged.is_some_and(|staged| staged.complete) {
        return false;
    }
    let here = staged.filter(|staged| staged.received > 0);
    let here = here.map(|staged| format!("{} % of {}", percent(staged), bytes(staged.length)));
    let parts = [here, job.map(|job| job.message.clone())];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let what = match parts.is_empty() {
        true => format!("{seed} to receive {source}"),
        false => format!("{seed} to receive {source}: {}", parts.join("; ")),
    };
    draft.wait("Bootstrap", seed, "Restoring", what);
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
    })
}

fn percent(staged: &Staged) -> u64 {
    let hundredths = u128::from(staged.received) * 100 / u128::from(staged.length.max(1));
    u64::try_from(hundredths.min(100)).unwrap_or(100)
}
