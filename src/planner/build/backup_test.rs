//! Golden renderings of the Jobs of backups, in `tests/build/backup.yaml`, and what they may hold.

use k8s_openapi::api::batch::v1::Job;

use super::backup_job::*;
use super::tests::{cluster, golden, settings, yaml};
use crate::crd::backups::{
    EtcdBackupStoreSpec, LocalRef, S3Store, ScheduleRetention, Scratch, SecretKeyRef,
    StoreEncryption, VolumeStore,
};
use crate::crd::{ExpectedDisk, FollowTls, FollowUser, FollowedCluster, Survivor, Until};

fn key(name: &str) -> SecretKeyRef {
    SecretKeyRef {
        name: name.to_owned(),
        key: "key".to_owned(),
    }
}

fn s3() -> EtcdBackupStoreSpec {
    EtcdBackupStoreSpec {
        s3: Some(S3Store {
            bucket: "bucket".to_owned(),
            prefix: Some("prod/etcd".to_owned()),
            region: Some("eu-central-1".to_owned()),
            endpoint: Some("https://s3.example:9000".to_owned()),
        }),
        credentials_secret_ref: Some(LocalRef {
            name: "credentials".to_owned(),
        }),
        ca_secret_ref: Some(SecretKeyRef {
            name: "store-ca".to_owned(),
            key: "root.pem".to_owned(),
        }),
        service_account_name: Some("uploader".to_owned()),
        encryption: Some(StoreEncryption {
            key_secret_ref: key("new-key"),
            previous_key_secret_refs: vec![key("old-key")],
        }),
        scratch: Some(Scratch {
            size: "8Gi".to_owned(),
            storage_class_name: Some("fast".to_owned()),
        }),
        ..EtcdBackupStoreSpec::default()
    }
}

fn volume() -> EtcdBackupStoreSpec {
    EtcdBackupStoreSpec {
        volume: Some(VolumeStore {
            claim_name: "backups".to_owned(),
            prefix: Some("quorate".to_owned()),
        }),
        ..EtcdBackupStoreSpec::default()
    }
}

fn owner(kind: &'static str, name: &str) -> BackupOwner {
    BackupOwner {
        kind,
        name: name.to_owned(),
        uid: "b5d1".to_owned(),
    }
}

fn save() -> BackupWork {
    BackupWork::Save {
        id: "monday-b5d1".to_owned(),
        rate: Some(20),
    }
}

fn restore() -> BackupWork {
    BackupWork::Restore {
        path: "prod/main/monday-b5d1".to_owned(),
        at: None,
        seed: "demo-1".to_owned(),
        recovery: None,
    }
}

fn recovery() -> Recovers {
    Recovers {
        uid: "c0de".to_owned(),
        incarnation: 2,
    }
}

fn recover() -> BackupWork {
    BackupWork::Recover {
        survivor: Survivor {
            member: "demo-3".to_owned(),
            expect: ExpectedDisk {
                disk_uuid: "5f1c".to_owned(),
                term: 4,
                index: 1207,
            },
            revision_bump: 1_000_000_000,
        },
        seed: "demo-4".to_owned(),
        recovery: recovery(),
    }
}

fn living() -> FollowedCluster {
    FollowedCluster {
        endpoints: vec![
            "https://etcd-0.etcd:2379".to_owned(),
            "https://etcd-1.etcd:2379".to_owned(),
        ],
        tls: Some(FollowTls {
            secret_ref: named("source-tls"),
        }),
        user: Some(FollowUser {
            secret_ref: named("source-root"),
        }),
        until: Until::CaughtUp,
        standby: false,
    }
}

fn named(name: &str) -> LocalRef {
    LocalRef {
        name: name.to_owned(),
    }
}

fn seed(follow: FollowedCluster) -> BackupWork {
    BackupWork::Seed {
        follow,
        seed: "demo-1".to_owned(),
    }
}

fn follow(follow: FollowedCluster) -> BackupWork {
    BackupWork::Follow {
        follow,
        made_from: "when-caught-up source-tls=7 source-root=9".to_owned(),
    }
}

/// One that is reached without TLS and without a user.
fn plain() -> FollowedCluster {
    FollowedCluster {
        endpoints: vec!["http://etcd-0.etcd:2379".to_owned()],
        ..FollowedCluster::default()
    }
}

/// A source that is lost.
fn lost() -> FollowedCluster {
    FollowedCluster {
        until: Until::SourceLost { revision: 48_211 },
        standby: true,
        ..plain()
    }
}

fn job(spec: &str, store: &EtcdBackupStoreSpec, work: &BackupWork) -> Job {
    let owner = match work {
        BackupWork::Prune { .. } | BackupWork::Archive { .. } => {
            owner("EtcdBackupSchedule", "nightly")
        }
        BackupWork::Restore { .. }
        | BackupWork::Recover { .. }
        | BackupWork::Seed { .. }
        | BackupWork::Follow { .. } => owner("EtcdCluster", "demo"),
        _ => owner("EtcdBackup", "monday"),
    };
    backup_job(&cluster(spec), &settings(), store, &owner, work, 2)
}

#[test]
fn jobs_of_backups() {
    let verify = BackupWork::Verify {
        id: "monday-b5d1".to_owned(),
    };
    let prune = BackupWork::Prune {
        retention: ScheduleRetention::default(),
        time_zone: "Europe/Berlin".to_owned(),
        archive_window: Some(604_800),
    };
    let archive = BackupWork::Archive { interval: 5 };
    let secret = backup_key_secret(
        "default",
        &owner("EtcdBackup", "monday"),
        ("monday-save-2", "a0b1"),
        &[(KEY_OF_MEMBER, b"k3y")],
    );
    let again = BackupWork::Restore {
        path: "prod/main/monday-b5d1".to_owned(),
        at: Some("revision:1207".to_owned()),
        seed: "demo-4".to_owned(),
        recovery: Some(recovery()),
    };
    let none = EtcdBackupStoreSpec::default();
    let text = yaml(&[
        &secret,
        &job("spec: {tls: {}}", &s3(), &save()),
        &job("spec: {}", &volume(), &save()),
        &job("spec: {}", &s3(), &verify),
        &job("spec: {}", &volume(), &prune),
        &job("spec: {tls: {}}", &s3(), &archive),
        &job("spec: {tls: {}}", &s3(), &restore()),
        &job("spec: {}", &volume(), &restore()),
        &job("spec: {}", &volume(), &again),
        &job("spec: {tls: {}}", &none, &recover()),
        &job("spec: {tls: {}}", &none, &seed(living())),
        &job("spec: {tls: {}}", &none, &follow(living())),
        &job("spec: {}", &none, &seed(plain())),
        &job("spec: {}", &none, &follow(plain())),
        &job("spec: {}", &none, &follow(lost())),
    ]);
    golden("backup.yaml", &text);
}

/// The keys for members are for Jobs that save or restore, and the operator's key, which can change members, is in none.
#[test]
fn jobs_hold_no_key_that_they_do_not_need() {
    let given = "spec: {tls: {peer: {source: Secret, certificateSecretRef: {name: peer-cert}, caSecretRef: {name: peer-ca}}}}";
    let verify = BackupWork::Verify { id: "a".to_owned() };
    for spec in ["spec: {}", "spec: {tls: {}}", given] {
        for (work, key) in [
            (save(), "monday-save-2-key"),
            (restore(), "demo-restore-2-key"),
            (recover(), "demo-restore-2-2-key"),
            (seed(plain()), "demo-restore-2-key"),
            (follow(plain()), "demo-follow-2-key"),
            (BackupWork::Archive { interval: 5 }, "nightly-archive-2-key"),
            (verify.clone(), ""),
        ] {
            let store = match work {
                BackupWork::Recover { .. }
                | BackupWork::Seed { .. }
                | BackupWork::Follow { .. } => EtcdBackupStoreSpec::default(),
                _ => volume(),
            };
            let job = job(spec, &store, &work);
            let pod = job.spec.and_then(|spec| spec.template.spec).expect("a pod");
            assert_eq!(pod.automount_service_account_token, Some(false));
            let volumes = pod.volumes.expect("volumes");
            let secrets: Vec<String> = volumes
                .iter()
                .filter_map(|volume| {
                    let secret = volume.secret.as_ref()?;
                    let keys = secret.items.iter().flatten().map(|item| item.key.clone());
                    let name = secret.secret_name.clone().unwrap_or_default();
                    Some(format!("{name}: {}", keys.collect::<Vec<_>>().join(" ")))
                })
                .collect();
            let mut wanted = Vec::new();
            if !key.is_empty() {
                let survivor = matches!(work, BackupWork::Recover { .. });
                let keys = if survivor { "key survivor" } else { "key" };
                wanted.push(format!("{key}: {keys}"));
                match spec {
                    "spec: {}" => {}
                    "spec: {tls: {}}" => wanted.push("demo-peer-ca: ca.crt".to_owned()),
                    _ => wanted.push("peer-ca: ca.crt".to_owned()),
                }
            }
            assert_eq!(secrets, wanted, "{spec} {work:?}");
        }
    }
}
