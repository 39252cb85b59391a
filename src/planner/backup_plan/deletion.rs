//! The last backup of a cluster that is to be deleted, `spec.backupBeforeDeletion`: a finalizer keeps the resource until one
//! EtcdBackup is stored that was begun after the deletion was asked for. The members go on as ever meanwhile. Never lets
//! go of a promised backup in silence: each reason is an event.

use sha2::{Digest, Sha256};

use crate::crd::ANNOTATION_NO_LAST_BACKUP;
use crate::crd::backups::BackupPhase;
use crate::mutants::mutant;

/// A cluster whose deletion may have to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedDeletion {
    /// Its name.
    pub cluster: String,
    /// UID of the resource.
    pub uid: String,
    /// The EtcdBackupStore that `spec.backupBeforeDeletion` names.
    pub store: Option<String>,
    /// The finalizer is there.
    pub held: bool,
    /// The deletion was asked for.
    pub deleting: bool,
    /// Kubernetes deletes the members before the resource: `--cascade=foreground`.
    pub foreground: bool,
    /// It was ever formed.
    pub formed: bool,
    /// It follows another cluster, and cannot have cut over: that one has all of its data.
    pub follows: bool,
    /// It follows another one by its status, and nothing holds the resource until that is settled: no backup of it may ever
    /// be made.
    pub may_follow: bool,
    /// The user wants no backup any more, by the annotation.
    pub waived: bool,
    /// The EtcdBackup with the name of the last backup.
    pub backup: Option<SeenBackup>,
}

/// The EtcdBackup with the name of the last backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenBackup {
    /// It is of this cluster, in this store, and younger than the deletion.
    pub is_last: bool,
    /// How far it is.
    pub phase: BackupPhase,
    /// What happens, or went wrong.
    pub message: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionStep {
    /// Add the finalizer.
    Hold,
    /// Remove it.
    LetGo(LetGo),
    /// Create the EtcdBackup.
    CreateBackup {
        /// Its name.
        name: String,
        /// The EtcdBackupStore.
        store: String,
    },
}

/// Why the finalizer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// No backup is asked for, or not any more.
    NotAsked,
    /// The annotation says so.
    Waived,
    /// The cluster was never formed.
    NothingToSave,
    /// It follows another cluster, which has its data.
    Follows,
    /// The backup is stored.
    Saved,
    /// The members are being deleted already.
    MembersGo,
    /// Nothing can be created in a namespace that is being deleted. A plan does not see it: the API server says so when the
    /// EtcdBackup is created.
    NamespaceGoes,
}

impl LetGo {
    /// What the event says; `None`: there is nothing to say.
    #[must_use]
    pub fn in_words(self, backup: &str) -> Option<String> {
        Some(match self {
            Self::NotAsked => return None,
            Self::Saved => format!("the last backup is stored: EtcdBackup {backup}"),
            Self::NothingToSave => "the cluster was never formed: there is nothing to save".into(),
            Self::Follows => "deleted without a last backup: it follows another cluster, which has all of its data".into(),
            Self::Waived => format!(
                "deleted without a last backup, as the annotation {ANNOTATION_NO_LAST_BACKUP} asks for"
            ),
            Self::MembersGo => "deleted without a last backup: with --cascade=foreground Kubernetes deletes the members first".into(),
            Self::NamespaceGoes => "deleted without a last backup: the namespace is being deleted, and nothing can be created in it".into(),
        })
    }

    /// Whether a promised backup was not made.
    #[must_use]
    pub fn is_a_loss(self) -> bool {
        matches!(self, Self::Waived | Self::MembersGo | Self::NamespaceGoes)
    }
}

/// What to do, and what the cluster's status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionPlan {
    /// At most one write.
    pub step: Option<DeletionStep>,
    /// What the deletion waits for; `None`: for nothing.
    pub waits: Option<DeletionWait>,
}

/// What a deletion waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionWait {
    /// In words.
    pub message: String,
    /// It waits until the user does something.
    pub needs_user: bool,
}

/// Name of the EtcdBackup: one for each life of a resource and store, and found again by whoever comes next. Jobs are
/// named after it, so it is short.
#[must_use]
pub fn last_backup_name(cluster: &str, uid: &str, store: &str) -> String {
    let digest = Sha256::digest(format!("{uid}/{store}").as_bytes());
    let digest: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let cluster: String = cluster.chars().take(36).collect();
    format!("{cluster}-last-{digest}")
}

/// Decides about the finalizer and the backup.
#[must_use]
pub fn plan_deletion(o: &ObservedDeletion) -> DeletionPlan {
    let step = |step| DeletionPlan {
        step: Some(step),
        waits: None,
    };
    let Some(store) = &o.store else {
        return match o.held {
            true => step(DeletionStep::LetGo(LetGo::NotAsked)),
            false => DeletionPlan::default(),
        };
    };
    match (o.deleting, o.held) {
        (false, false) => return step(DeletionStep::Hold),
        (false, true) | (true, false) => return DeletionPlan::default(),
        (true, true) => {}
    }
    let excuses = [
        (o.waived, LetGo::Waived),
        (o.foreground, LetGo::MembersGo),
        (!o.formed, LetGo::NothingToSave),
        (o.follows, LetGo::Follows),
    ];
    if let Some((_, why)) = excuses.into_iter().find(|(holds, _)| *holds) {
        return step(DeletionStep::LetGo(why));
    }
    let name = last_backup_name(&o.cluster, &o.uid, store);
    match &o.backup {
        None => DeletionPlan {
            waits: Some(waits(format!("EtcdBackup {name} to be created"))),
            ..step(DeletionStep::CreateBackup {
                name,
                store: store.clone(),
            })
        },
        Some(backup) => of_backup(o, &name, backup),
    }
}

fn of_backup(o: &ObservedDeletion, name: &str, backup: &SeenBackup) -> DeletionPlan {
    let only = |waits| DeletionPlan {
        step: None,
        waits: Some(waits),
    };
    if backup.deleting {
        return only(waits(format!("EtcdBackup {name} to be deleted")));
    }
    if !backup.is_last {
        return only(stuck(o, name, "exists, and was not made for this deletion"));
    }
    let message = backup.message.as_deref().unwrap_or_default();
    match backup.phase {
        _ if mutant!(LastBackupSkipped) => DeletionPlan {
            step: Some(DeletionStep::LetGo(LetGo::Saved)),
            waits: None,
        },
        BackupPhase::Uploaded | BackupPhase::Verified => DeletionPlan {
            step: Some(DeletionStep::LetGo(LetGo::Saved)),
            waits: None,
        },
        BackupPhase::Failed => only(stuck(o, name, &format!("has failed: {message}"))),
        BackupPhase::Pending if o.may_follow && !message.is_empty() => {
            only(stuck(o, name, &format!("waits: {message}")))
        }
        BackupPhase::Pending | BackupPhase::Streaming if message.is_empty() => {
            only(waits(format!("EtcdBackup {name} to be stored")))
        }
        BackupPhase::Pending | BackupPhase::Streaming => {
            only(waits(format!("EtcdBackup {name} to be stored: {message}")))
        }
    }
}

fn waits(message: String) -> DeletionWait {
    DeletionWait {
        message,
        needs_user: false,
    }
}

fn stuck(o: &ObservedDeletion, name: &str, why: &str) -> DeletionWait {
    DeletionWait {
        message: format!(
            "the cluster is saved before it is deleted, and EtcdBackup {name} {why}. Correct the reason and delete that EtcdBackup, then it is made again; or give the backup up: take spec.backupBeforeDeletion out, or kubectl annotate etcdcluster {} {ANNOTATION_NO_LAST_BACKUP}=true",
            o.cluster
        ),
        needs_user: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> ObservedDeletion {
        ObservedDeletion {
            cluster: "demo".into(),
            uid: "3f1c6a52-9d0e-4c57-a3a2-1f2e6a5a9d31".into(),
            store: Some("nightly".into()),
            held: true,
            deleting: true,
            formed: true,
            ..ObservedDeletion::default()
        }
    }

    fn with(phase: BackupPhase) -> ObservedDeletion {
        ObservedDeletion {
            backup: Some(SeenBackup {
                is_last: true,
                phase,
                message: Some("the store refuses".into()),
                deleting: false,
            }),
            ..asked()
        }
    }

    /// Every combination of what can be observed, as a table would have it.
    #[test]
    fn a_promised_backup_is_never_given_up_in_silence() {
        let phases = [
            None,
            Some(BackupPhase::Pending),
            Some(BackupPhase::Streaming),
            Some(BackupPhase::Uploaded),
            Some(BackupPhase::Verified),
            Some(BackupPhase::Failed),
        ];
        for bits in 0..512_u32 {
            let bit = |n: u32| bits & (1 << n) != 0;
            for phase in phases {
                let backup = phase.map(|phase| SeenBackup {
                    is_last: bit(6),
                    phase,
                    message: None,
                    deleting: bit(7),
                });
                let o = ObservedDeletion {
                    store: bit(0).then(|| "nightly".to_owned()),
                    held: bit(1),
                    deleting: bit(2),
                    foreground: bit(3),
                    formed: bit(4),
                    waived: bit(5),
                    follows: bit(8),
                    backup,
                    ..asked()
                };
                let plan = plan_deletion(&o);
                let saved = o.backup.as_ref().is_some_and(|backup| {
                    let stored =
                        matches!(phase, Some(BackupPhase::Uploaded | BackupPhase::Verified));
                    backup.is_last && !backup.deleting && stored
                });
                let step = plan.step.clone();
                match &step {
                    Some(DeletionStep::Hold) => {
                        assert!(!o.held && !o.deleting && o.store.is_some())
                    }
                    Some(DeletionStep::CreateBackup { .. }) => {
                        assert!(o.held && o.deleting && o.backup.is_none() && o.store.is_some());
                    }
                    Some(DeletionStep::LetGo(why)) => {
                        assert!(o.held, "{o:?}");
                        match why {
                            LetGo::NotAsked => assert!(o.store.is_none()),
                            LetGo::Saved => assert!(saved && o.deleting),
                            LetGo::Waived => assert!(o.waived && o.deleting),
                            LetGo::MembersGo => assert!(o.foreground && o.deleting),
                            LetGo::NothingToSave => assert!(!o.formed && o.deleting),
                            LetGo::Follows => assert!(o.follows && o.formed && o.deleting),
                            LetGo::NamespaceGoes => panic!("a plan does not see it"),
                        }
                        let says = why.in_words("demo-last").is_some();
                        assert_eq!(says, *why != LetGo::NotAsked);
                    }
                    None => {}
                }
                // Whoever waits says for what; whoever does not wait for a promised backup lets go.
                let promised = o.store.is_some() && o.held && o.deleting;
                let goes = matches!(step, Some(DeletionStep::LetGo(_)));
                assert_eq!(promised && !goes, plan.waits.is_some(), "{o:?}");
            }
        }
    }

    /// The followed cluster was given up, and no leader here says that its place was taken.
    #[test]
    fn a_backup_that_may_never_be_made_says_how_to_give_it_up() {
        let pending = with(BackupPhase::Pending);
        assert!(!plan_deletion(&pending).waits.expect("it waits").needs_user);
        let may_follow = ObservedDeletion {
            may_follow: true,
            ..pending
        };
        let waits = plan_deletion(&may_follow).waits.expect("it waits");
        assert!(waits.needs_user, "{waits:?}");
        assert!(
            waits.message.contains("delete-without-backup=true"),
            "{waits:?}"
        );
    }

    #[test]
    fn what_holds_it_up_says_what_to_do() {
        let failed = plan_deletion(&with(BackupPhase::Failed));
        let waits = failed.waits.expect("it waits");
        assert!(waits.needs_user && failed.step.is_none());
        for words in [
            "demo-last-",
            "the store refuses",
            "delete that EtcdBackup",
            "kubectl annotate etcdcluster demo quorate.dev/delete-without-backup=true",
        ] {
            assert!(waits.message.contains(words), "{words}: {}", waits.message);
        }
        let streaming = plan_deletion(&with(BackupPhase::Streaming)).waits;
        assert!(!streaming.expect("it waits").needs_user);
    }

    #[test]
    fn another_store_is_another_backup() {
        let name = |o: &ObservedDeletion| match plan_deletion(o).step {
            Some(DeletionStep::CreateBackup { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        let first = name(&asked());
        let again = ObservedDeletion {
            store: Some("other".into()),
            ..asked()
        };
        assert_ne!(first, name(&again));
        let long = ObservedDeletion {
            cluster: "a".repeat(40),
            ..asked()
        };
        assert!(name(&long).len() <= 50);
    }
}
