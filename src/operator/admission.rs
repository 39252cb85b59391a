//! Whether a resource can be carried out: the rules of its schema, and then the command line of its members, checked by
//! the server's own parser. So settings with which a server would not start are refused before any pod is touched, with
//! the server's own error.
//!
//! Reads nothing: neither the files that a command line names nor the machine.

use std::collections::BTreeMap;

use crate::build;
use crate::crd::{EtcdCluster, ExtraArg, Invalid, ValidatedCluster, bytes_of, validate};
use crate::server::HostFacts;
use crate::server::flags::Flags;
use crate::server::flags::config::Config;
use crate::server::flags::table::{self, Class};

/// The resource, if every rule and the server have nothing against it.
///
/// # Errors
/// [`Invalid`] with what is wrong and what to do about it.
pub fn admit(cluster: &EtcdCluster) -> Result<ValidatedCluster, Invalid> {
    let valid = validate(cluster)?;
    // Without settings of the server, there is nothing that a user could correct.
    if valid.spec.server.is_default() {
        return Ok(valid);
    }
    let mut problems: Vec<String> = valid
        .spec
        .server
        .extra_args
        .iter()
        .filter_map(|flag| Some(format!("spec.server.extraArgs: {}", objection(flag)?)))
        .collect();
    if problems.is_empty() {
        let refusal = judged(&valid).err();
        problems.extend(refusal.map(|why| format!("spec.server: {why}")));
    }
    if problems.is_empty() {
        Ok(valid)
    } else {
        Err(Invalid { problems })
    }
}

/// Errors of a flag by itself, independent of the others.
fn objection(asked: &ExtraArg) -> Option<String> {
    let name = &asked.name;
    let Some(flag) = table::find(name) else {
        let near = table::nearest(name);
        let near = near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
        return Some(format!(
            "the server knows no flag {name}{near}; see `quorate server --help`"
        ));
    };
    match flag.class {
        Class::Refused(instead) => Some(format!("{name} is not supported: {instead}")),
        Class::Accepted(why) => Some(format!("{name} has no effect: {why}; take it out")),
        Class::Effect if name == "auth-token" && asked.value != "simple" => Some(
            "auth-token: tokens other than simple ones need files that no member has; leave it out"
                .to_owned(),
        ),
        Class::Effect => None,
    }
}

/// The server's own judgement of the whole command line.
fn judged(cluster: &ValidatedCluster) -> Result<(), String> {
    let arguments = build::server_arguments(cluster, &format!("{}-1", cluster.name), false);
    let flags = arguments.get(1..).unwrap_or_default();
    let flags = Flags::parse(flags, &BTreeMap::new()).map_err(|refusal| refusal.to_string())?;
    let limit = cluster.spec.resources.limits.get("memory");
    let machine = HostFacts {
        memory_limit: limit.and_then(|limit| bytes_of(&limit.0).ok()),
    };
    let config = Config::from_flags(&flags, machine).map_err(|refusal| refusal.to_string());
    config.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::{FLAGS_OF_OPERATOR, FLAGS_OF_SERVER, FLAGS_OF_TLS};

    fn admitted(spec: &str) -> Result<ValidatedCluster, String> {
        let head = "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: demo, namespace: prod, uid: u}\n";
        let cluster = crate::crd::parse(&format!("{head}spec: {spec}\n"));
        admit(&cluster.expect("the schema takes it")).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn rendered_command_line_is_valid() {
        let valid = admitted("{}").expect("valid");
        for argument in build::server_arguments(&valid, "demo-1", false)
            .iter()
            .skip(1)
        {
            let name = argument.trim_start_matches("--").split('=').next();
            let name = name.unwrap_or_default();
            let flag = table::FLAGS.iter().find(|flag| flag.name == name);
            let effect = flag.is_some_and(|flag| flag.class == Class::Effect);
            assert!(effect, "--{name} has no effect on the server");
        }
    }

    #[test]
    fn reserved_flags_exist() {
        for name in [FLAGS_OF_OPERATOR, FLAGS_OF_SERVER, FLAGS_OF_TLS].concat() {
            assert!(table::find(name).is_some(), "the server has no --{name}");
        }
    }

    #[test]
    fn spec_is_refused_in_the_servers_words() {
        let flag = |name: &str, value: &str| {
            format!("{{server: {{extraArgs: [{{name: {name}, value: '{value}'}}]}}}}")
        };
        for (spec, words) in [
            (
                flag("log-levle", "debug"),
                "knows no flag log-levle (did you mean log-level?)",
            ),
            (
                flag("enable-pprof", "true"),
                "enable-pprof is not supported: profile",
            ),
            (
                flag("backend-batch-limit", "5"),
                "has no effect: there is no bbolt file to tune",
            ),
            (
                flag("max-request-bytes", "many"),
                "give a whole number from 0",
            ),
            (
                flag("max-request-bytes", "0"),
                "--max-request-bytes is 0: give 1 to",
            ),
            (
                flag("feature-gates", "Foo=true"),
                "unrecognized feature gate: Foo",
            ),
            (
                flag("auth-token", "jwt,pub-key=/k"),
                "need files that no member has",
            ),
            (flag("client-cert-allowed-cn", "root"), "need TLS"),
            (
                "{resources: {limits: {memory: 1Gi}}, server: {quota: 1Gi}}".to_owned(),
                "a member needs 2.5 times its data: give at most",
            ),
        ] {
            let why = admitted(&spec).expect_err(&spec);
            assert!(why.starts_with("spec.server"), "{why}");
            assert!(why.contains(words), "{spec}: {why}");
        }
    }

    #[test]
    fn server_args_are_admitted_either_way() {
        for spec in [
            "{}",
            "{server: {quota: 1Gi, autoCompaction: {retention: 1h30m}}, resources: {limits: {memory: 4Gi}}}",
            "{server: {autoCompaction: {mode: Revision, retention: '999999999'}}}",
            "{server: {heartbeatIntervalMilliseconds: 1000, electionTimeoutMilliseconds: 10000}}",
            "{server: {extraArgs: [{name: unsafe-no-fsync, value: 'true'}, {name: auth-token, value: simple}]}}",
            "{tls: {}, server: {extraArgs: [{name: client-cert-allowed-cn, value: root}]}}",
        ] {
            assert!(admitted(spec).is_ok(), "{spec}: {:?}", admitted(spec));
        }
    }

    /// Without settings of the servers a valid resource stays valid.
    #[test]
    fn no_settings_no_more_requests() {
        assert!(admitted("{resources: {limits: {memory: 1Mi}}}").is_ok());
    }
}
