//! The plan of a user: the order of its steps, what it waits for, and that root is never locked out.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::role_test::about;
use super::*;
use crate::crd::access::{EtcdUserStatus, ROOT};

const DAY_MS: u64 = 86_400_000;

fn user(name: &str, spec: Value) -> ObservedUser {
    let mut all = json!({"clusterRef": {"name": "demo"}});
    for (key, value) in spec.as_object().expect("an object") {
        all[key] = value.clone();
    }
    ObservedUser {
        about: about(),
        spec: serde_json::from_value(all).expect("a spec"),
        status: EtcdUserStatus::default(),
        name: name.to_owned(),
        secret: format!("{name}-connection"),
        issues: Ok(()),
        password: PasswordFacts::NotAsked,
        connection: ConnectionFacts::default(),
        cluster: ClusterView::Reached(HeldUser {
            auth_revision: 1,
            known_roles: ["app".to_owned()].into(),
            ..HeldUser::default()
        }),
    }
}

fn held(observed: &mut ObservedUser) -> &mut HeldUser {
    match &mut observed.cluster {
        ClusterView::Reached(held) => held,
        other => panic!("{other:?}"),
    }
}

/// What a step makes of the facts, for as long as nobody else does anything.
fn done(observed: &mut ObservedUser, step: &AccessStep) {
    let now_ms = u64::try_from(observed.about.now.as_millisecond()).expect("after 1970");
    match step {
        AccessStep::Hold => observed.about.held = true,
        AccessStep::LetGo => observed.about.held = false,
        AccessStep::WriteConnection {
            new_password,
            new_certificate,
        } => {
            observed.connection.exists = true;
            observed.connection.is_current = true;
            if *new_password {
                observed.password = PasswordFacts::There {
                    made_ms: Some(now_ms),
                };
                held(observed).password_is_right = false;
            }
            if *new_certificate {
                observed.connection.certificate = Some(CertificateInUse {
                    fits: true,
                    is_longest: false,
                    not_before_ms: now_ms,
                    not_after_ms: now_ms + 90 * DAY_MS,
                });
            }
        }
        AccessStep::Change(change) => {
            let can_connect = observed.connection.exists;
            let held = held(observed);
            held.auth_revision += 1;
            match (change, &mut held.user) {
                (AccessChange::AddUser { no_password }, user) => {
                    *user = Some((*no_password, BTreeSet::new()));
                    held.password_is_right = !no_password;
                }
                (AccessChange::SetPassword, _) => held.password_is_right = true,
                (AccessChange::DeleteUser, user) => *user = None,
                (AccessChange::GrantRole(role), Some((_, roles))) => {
                    assert!(roles.insert(role.clone()))
                }
                (AccessChange::RevokeRole(role), Some((_, roles))) => assert!(roles.remove(role)),
                (AccessChange::Enable, Some((_, roles))) => {
                    assert!(roles.contains(ROOT) && can_connect);
                    held.enabled = true;
                }
                (AccessChange::Disable, _) => held.enabled = false,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The steps until nothing is left to do, in words, and the reason then.
fn steps(observed: &mut ObservedUser) -> (Vec<String>, String) {
    let mut words = Vec::new();
    loop {
        let plan = plan_user(observed);
        let reason = plan.status.conditions[0].reason.clone();
        let Some(step) = plan.step else {
            return (words, reason);
        };
        // Nothing is as specified before it was done.
        assert_eq!(plan.status.conditions[0].status, "False", "{step:?}");
        words.push(match &step {
            AccessStep::Change(change) => change.to_string(),
            other => format!("{other:?}"),
        });
        assert!(words.len() < 20, "{words:?}");
        done(observed, &step);
    }
}

fn written(new_password: bool, new_certificate: bool) -> String {
    format!(
        "WriteConnection {{ new_password: {new_password}, new_certificate: {new_certificate} }}"
    )
}

#[test]
fn a_new_user_gets_the_secret_the_roles_and_the_password() {
    let mut app = user(
        "app",
        json!({"roles": ["app"], "password": {}, "certificate": {}}),
    );
    app.about.held = false;
    app.password = PasswordFacts::Missing("none yet".into());
    let (words, reason) = steps(&mut app);
    let wanted = [
        "Hold",
        &written(true, true),
        "add the user",
        "grant the role app to the user",
    ];
    assert_eq!(
        (words, reason.as_str()),
        (wanted.map(str::to_owned).into(), "AsSpecified")
    );
    assert_eq!(plan_user(&app).again_ms, 60_000);
}

#[test]
fn root_enables_authentication_last() {
    let mut root = user(
        ROOT,
        json!({"certificate": {}, "authentication": "Enabled"}),
    );
    let (words, reason) = steps(&mut root);
    let wanted = [
        &written(false, true),
        "add the user",
        "grant the role root to the user",
        "enable authentication",
    ];
    assert_eq!(words, wanted);
    assert_eq!(reason, "AsSpecified");
    // Somebody took root's role while nothing needed a user: it is given back, and nothing else happens.
    held(&mut root).user = Some((true, BTreeSet::new()));
    assert_eq!(steps(&mut root).0, ["grant the role root to the user"]);
    // No roles are asked for, and root keeps its own.
    let (_, roles) = held(&mut root).user.clone().expect("root");
    assert_eq!(roles, [ROOT.to_owned()].into());
    root.spec.authentication = Some(crate::crd::access::Authentication::Disabled);
    assert_eq!(steps(&mut root).0, ["disable authentication"]);
}

/// A root whose password is not the one in the Secret could not undo what it is asked for.
#[test]
fn authentication_waits_for_a_password_that_is_right() {
    let spec =
        json!({"password": {"secretRef": {"name": "s", "key": "k"}}, "authentication": "Enabled"});
    let mut root = user(ROOT, spec);
    root.password = PasswordFacts::There { made_ms: None };
    held(&mut root).user = Some((false, [ROOT.to_owned()].into()));
    let wanted = [
        "set the user's password",
        &written(false, false),
        "enable authentication",
    ];
    assert_eq!(steps(&mut root).0, wanted);
    root.password = PasswordFacts::Missing("there is no Secret s".into());
    held(&mut root).enabled = false;
    held(&mut root).password_is_right = false;
    let plan = plan_user(&root);
    assert_eq!(
        (plan.step, plan.status.conditions[0].reason.as_str()),
        (None, "SecretMissing")
    );
}

#[test]
fn root_stays_while_requests_need_a_user() {
    let mut root = user(ROOT, json!({"certificate": {}}));
    root.about.deleting = true;
    held(&mut root).user = Some((true, [ROOT.to_owned()].into()));
    held(&mut root).enabled = true;
    assert_eq!(plan_user(&root).step, Some(AccessStep::LetGo));
    held(&mut root).enabled = false;
    let goes = AccessStep::Change(AccessChange::DeleteUser);
    assert_eq!(plan_user(&root).step, Some(goes.clone()));
    let mut app = user("app", json!({"certificate": {}}));
    app.about.deleting = true;
    held(&mut app).user = Some((true, BTreeSet::new()));
    held(&mut app).enabled = true;
    assert_eq!(plan_user(&app).step, Some(goes));
    // Another resource stands for the same user.
    app.about.rival = Some("older".to_owned());
    assert_eq!(plan_user(&app).step, Some(AccessStep::LetGo));
}

#[test]
fn what_is_missing_is_said() {
    let reason = |observed: &ObservedUser| {
        let plan = plan_user(observed);
        (
            plan.status.conditions[0].reason.clone(),
            plan.status.message.unwrap_or_default(),
        )
    };
    let mut app = user("app", json!({"roles": ["app", "other"], "password": {}}));
    app.password = PasswordFacts::Missing("none yet".into());
    let (words, _) = steps(&mut app);
    assert!(
        words.contains(&"grant the role app to the user".to_owned()),
        "{words:?}"
    );
    let (missing, text) = reason(&app);
    assert_eq!(missing, "RolesMissing");
    assert!(text.contains("no role other"), "{text}");
    held(&mut app).user = Some((true, BTreeSet::new()));
    let (kind, text) = reason(&app);
    assert_eq!(kind, "OtherKindOfUser");
    assert!(text.contains("etcdctl user delete app"), "{text}");
    app.about.rival = Some("older".to_owned());
    assert_eq!(reason(&app).0, "Conflict");
    let mut app = user("app", json!({"certificate": {}}));
    app.issues = Err("no TLS".to_owned());
    assert_eq!(
        reason(&app),
        ("CertificateNotIssued".to_owned(), "no TLS".to_owned())
    );
    // Nothing is written for a cluster that is not there: it has no CA and no address.
    app.issues = Ok(());
    app.cluster = ClusterView::Unreachable("no leader".to_owned());
    assert_eq!(
        reason(&app),
        ("ClusterUnreachable".to_owned(), "no leader".to_owned())
    );
    app.cluster = ClusterView::Gone;
    assert_eq!(reason(&app).0, "ClusterMissing");
    assert_eq!(plan_user(&app).step, None);
}

/// With `tls.clientAuth: None` no member asks for a certificate: authentication was enabled for a root who had nothing else,
/// and nobody was root.
#[test]
fn a_certificate_that_nobody_asks_for_is_no_proof() {
    let mut root = user(
        ROOT,
        json!({"certificate": {}, "authentication": "Enabled"}),
    );
    root.issues = Err("members ask for none".to_owned());
    let (words, reason) = steps(&mut root);
    assert!(
        !words.contains(&"enable authentication".to_owned()),
        "{words:?}"
    );
    assert_eq!(reason, "CertificateNotIssued");
    root.spec.password = Some(crate::crd::access::UserPassword::default());
    root.password = PasswordFacts::Missing("none yet".into());
    held(&mut root).user = None;
    let (words, _) = steps(&mut root);
    assert!(
        words.contains(&"enable authentication".to_owned()),
        "{words:?}"
    );
}

/// The password's Secret is gone: the certificate was not renewed and the roles stayed as they were.
#[test]
fn a_missing_password_holds_up_nothing_else() {
    let spec = json!({"password": {"secretRef": {"name": "s", "key": "k"}}, "certificate": {}, "roles": ["app"]});
    let mut app = user("app", spec);
    app.password = PasswordFacts::Missing("there is no Secret s".into());
    held(&mut app).user = Some((false, BTreeSet::new()));
    let (words, reason) = steps(&mut app);
    assert_eq!(
        words,
        [&written(false, true), "grant the role app to the user"]
    );
    assert_eq!(reason, "SecretMissing");
    // A new user is not added without the password.
    held(&mut app).user = None;
    assert_eq!(plan_user(&app).step, None);
}

/// With half an hour left of the CA, every certificate was due at once, again and again.
#[test]
fn a_certificate_that_ends_with_its_authority_is_not_renewed() {
    let mut app = user("app", json!({"certificate": {}}));
    steps(&mut app);
    let now_ms = u64::try_from(app.about.now.as_millisecond()).expect("after 1970");
    let certificate = app.connection.certificate.as_mut().expect("one");
    certificate.not_before_ms = now_ms - 3_600_000;
    certificate.not_after_ms = now_ms + 600_000;
    certificate.is_longest = true;
    assert_eq!(plan_user(&app).step, None);
}

#[test]
fn passwords_and_certificates_are_renewed_in_time() {
    let spec = json!({"password": {"rotateAfterDays": 30}, "certificate": {}});
    let mut app = user("app", spec);
    app.password = PasswordFacts::Missing("none yet".into());
    steps(&mut app);
    let start = app.about.now;
    let mut after = |days: i64| {
        app.about.now = start + jiff::SignedDuration::from_hours(24 * days);
        steps(&mut app).0
    };
    assert_eq!(after(29), Vec::<String>::new());
    // A password is the user's once it is in the Secret, which no one else has read.
    assert_eq!(
        after(30),
        [&written(true, false), "set the user's password"]
    );
    assert_eq!(after(59), Vec::<String>::new());
    // Two thirds of ninety days, and the second thirty.
    assert_eq!(after(60), [&written(true, true), "set the user's password"]);
}
