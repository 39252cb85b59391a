//! How the Jobs of a cluster that follows another one reach that one: their arguments, and the user's Secrets that they
//! mount. Never reads what is in those.

use k8s_openapi::api::core::v1::{
    KeyToPath, ProjectedVolumeSource, SecretProjection, Volume, VolumeMount, VolumeProjection,
};

use super::backup_job::{at, secret};
use crate::crd::{FollowedCluster, Until};

const TLS: &str = "/etc/quorate/source-tls";
const USER: &str = "/etc/quorate/source-user";

/// How the cluster that is followed is called. A certificate for it may be missing in its Secret: its files then are, too.
pub(super) fn arguments(follow: &FollowedCluster) -> Vec<String> {
    let endpoints = follow.endpoints.iter();
    let mut all: Vec<String> = endpoints.map(|url| format!("--from={url}")).collect();
    if follow.tls.is_some() {
        all.push(format!("--from-cacert={TLS}/ca.crt"));
        all.push(format!("--from-cert={TLS}/tls.crt"));
        all.push(format!("--from-key={TLS}/tls.key"));
    }
    if follow.user.is_some() {
        all.push(format!("--from-user-file={USER}/username"));
        all.push(format!("--from-password-file={USER}/password"));
    }
    all
}

/// When its place is taken.
pub(super) fn until(until: Until) -> Vec<String> {
    let mut all = vec![format!("--cutover={}", until.argument())];
    if let Until::SourceLost { revision } = until {
        all.push(format!("--revision={revision}"));
    }
    all
}

/// The Secrets for the cluster that is followed.
pub(super) fn volumes(follow: &FollowedCluster) -> Vec<(Volume, VolumeMount)> {
    let mut all = Vec::new();
    if let Some(tls) = &follow.tls {
        let name = &tls.secret_ref.name;
        // A client certificate is not asked for everywhere.
        let parts = vec![
            part(name, &["ca.crt"], false),
            part(name, &["tls.crt", "tls.key"], true),
        ];
        let volume = Volume {
            name: "source-tls".to_owned(),
            projected: Some(ProjectedVolumeSource {
                default_mode: Some(0o440),
                sources: Some(parts),
            }),
            ..Volume::default()
        };
        all.push(at(TLS, true, volume));
    }
    if let Some(user) = &follow.user {
        let files = [("username", "username"), ("password", "password")];
        let name = &user.secret_ref.name;
        all.push(secret("source-user", USER, name, &files));
    }
    all
}

/// Keys of a Secret as files of the same names in one volume with others.
fn part(secret: &str, keys: &[&str], optional: bool) -> VolumeProjection {
    let item = |key: &&str| KeyToPath {
        key: (*key).to_owned(),
        path: (*key).to_owned(),
        mode: None,
    };
    VolumeProjection {
        secret: Some(SecretProjection {
            name: secret.to_owned(),
            items: Some(keys.iter().map(item).collect()),
            optional: optional.then_some(true),
        }),
        ..VolumeProjection::default()
    }
}
