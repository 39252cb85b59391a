//! What is promised about the deletion of the resource, and is not kept by the plan: a policy of the API server refuses it,
//! a last backup is made, or a followed cluster is opened again, apart from the plan, under finalizers. Only reports; holds
//! nothing up: the members of a cluster that waits are healed as ever.

use crate::plan::draft::Draft;
use crate::plan::following;
use crate::plan::observed::DeletionPolicy;
use crate::plan::situation::Situation;

/// Reports a protection that nothing enforces, and what the deletion waits for. After all other rules: they are not
/// stalled by it.
pub(super) fn rule(s: &Situation<'_>, draft: &mut Draft) {
    if s.o.deleting {
        waits(s, draft);
    }
    if !s.cluster.spec.deletion_protection {
        return;
    }
    match s.o.deletion_policy {
        DeletionPolicy::Enforced => {}
        DeletionPolicy::Missing => draft.note(
            "NotProtected",
            "spec.deletionProtection is true and nothing enforces it: no ValidatingAdmissionPolicy refuses the deletion. Install the chart with deletionProtection.enabled=true",
        ),
        DeletionPolicy::Unknown => draft.note(
            "ProtectionUnknown",
            "spec.deletionProtection is true, and the operator cannot see whether a ValidatingAdmissionPolicy enforces it: let it list validatingadmissionpolicies and validatingadmissionpolicybindings (the chart's clusterRead)",
        ),
    }
}

fn waits(s: &Situation<'_>, draft: &mut Draft) {
    match &s.o.last_backup {
        Some(facts) if facts.needs_user => {
            let reason = match facts.of_source {
                true => "SourceClosed",
                false => "LastBackupFails",
            };
            draft.stall(reason, facts.message.clone());
        }
        Some(facts) => {
            let reason = match facts.of_source {
                true => "SourceClosed",
                false => "LastBackup",
            };
            draft.wait("Delete", "", reason, facts.message.clone());
        }
        None if s.cluster.spec.backup_before_deletion.is_none() && s.to_follow().is_some() => {
            let what = format!("{} to be seen open to writes", following::noun(s));
            draft.wait("Delete", "", "SourceClosed", what);
        }
        None => {
            let what = "the last backup, which spec.backupBeforeDeletion asks for";
            draft.wait("Delete", "", "LastBackup", what);
        }
    }
}
