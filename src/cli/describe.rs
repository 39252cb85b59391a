//! `quorate describe`: one server's description of itself and its cluster, requested on its peer port.
//! Reads only. Meant for `kubectl exec` in a member's pod, where the secret is mounted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::server::operator_api::auth::Key;
use crate::server::operator_api::client::MemberClient;
use crate::server::operator_api::secure::Secure;
use crate::wire::member::{DescribeResponse, Phase, PortSecurity, Role};

/// A server that does not answer within this is reported as such.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where a member's pod has the roots of the peer port.
const POD_ROOTS: &str = "/etc/quorate/peer/ca.crt";

/// Prints a server's description of itself and its cluster.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The server's peer address.
    #[arg(long, default_value = "127.0.0.1:2380")]
    address: String,
    /// The file with the cluster's operator secret; by default where a member's pod has it.
    #[arg(
        long,
        env = "QUORATE_OPERATOR_SECRET_FILE",
        default_value = "/etc/quorate/operator/key"
    )]
    operator_secret_file: PathBuf,
    /// PEM root certificates of the peer port if it uses TLS; by default those of a member's pod, if any. A server
    /// without TLS is queried without.
    #[arg(long)]
    trusted_ca_file: Option<PathBuf>,
    /// Name in the server's certificate, if it is not the host of the address.
    #[arg(long)]
    server_name: Option<String>,
    /// Only the last 64 changes of the configuration, oldest first: one "KIND NAME" a line.
    #[arg(long)]
    changes: bool,
}

/// Runs the subcommand.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match ask(arguments) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("quorate describe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(arguments: &Arguments) -> Result<String, String> {
    let key = Key::read(&arguments.operator_secret_file).map_err(|error| error.to_string())?;
    let secure = secure(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let described = runtime.block_on(async {
        let mut client = MemberClient::new(&arguments.address, key, PATIENCE, secure.as_ref())
            .map_err(|error| error.to_string())?;
        let answer = client.describe(false).await;
        answer.map_err(|status| format!("{}: {}", arguments.address, status.message()))
    })?;
    Ok(if arguments.changes {
        changes(&described)
    } else {
        summary(&described)
    })
}

/// How the server's certificate is verified; `None` without known root certificates.
fn secure(arguments: &Arguments) -> Result<Option<Secure>, String> {
    let path = match &arguments.trusted_ca_file {
        Some(path) => path.as_path(),
        None if Path::new(POD_ROOTS).exists() => Path::new(POD_ROOTS),
        None => return Ok(None),
    };
    let roots_pem = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let address = &arguments.address;
    let host = address
        .rsplit_once(':')
        .map_or(&**address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Some(Secure {
        roots_pem: roots_pem.into(),
        server_name: arguments.server_name.clone().unwrap_or(host.to_owned()),
        plaintext_too: true,
    }))
}

/// How a port is secured, as one line; empty for a server that does not report it.
fn port(name: &str, port: Option<&PortSecurity>) -> String {
    let Some(port) = port else {
        return String::new();
    };
    let tls = match (port.tls, port.plaintext_accepted) {
        (false, _) => return format!("{name} port: no TLS\n"),
        (true, true) => "TLS, and plain text too",
        (true, false) => "TLS",
    };
    let until = jiff::Timestamp::from_millisecond(port.not_after_ms).unwrap_or_default();
    format!("{name} port: {tls}; its certificate ends {until}\n")
}

fn changes(described: &DescribeResponse) -> String {
    let lines = described.changes.iter();
    lines
        .map(|change| format!("{} {}\n", change.kind, change.name))
        .collect()
}

fn summary(described: &DescribeResponse) -> String {
    let phase = Phase::try_from(described.phase).unwrap_or(Phase::Unspecified);
    let role = Role::try_from(described.role).unwrap_or(Role::Unspecified);
    let mut text = format!(
        "{} {} ({}), {}, {}\n",
        described.name,
        phase.as_str_name().trim_start_matches("PHASE_"),
        role.as_str_name().trim_start_matches("ROLE_"),
        described.version,
        if described.ready {
            "ready"
        } else {
            &described.unready_reason
        },
    );
    text += &format!(
        "cluster {:x}, member {:x}, leader {:x}, term {}, commit {}, applied {}, revision {}\n",
        described.cluster_id,
        described.member_id,
        described.leader_id,
        described.term,
        described.commit,
        described.applied,
        described.revision,
    );
    text += &port("peer", described.peer_security.as_ref());
    text += &port("client", described.client_security.as_ref());
    for member in &described.members {
        text += &format!(
            "  {:<20} {:<8} {:016x}  {}\n",
            member.name,
            if member.learner { "learner" } else { "voter" },
            member.id,
            member.peer_urls.join(","),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::member::{Change, MemberView};

    #[test]
    fn the_history_is_one_change_a_line() {
        let change = |kind: &str, name: &str| Change {
            kind: kind.into(),
            name: name.into(),
            ..Change::default()
        };
        let described = DescribeResponse {
            changes: vec![change("AddLearner", "demo-2"), change("Promote", "demo-2")],
            ..DescribeResponse::default()
        };
        assert_eq!(changes(&described), "AddLearner demo-2\nPromote demo-2\n");
    }

    #[test]
    fn the_summary_names_phase_role_and_members() {
        let described = DescribeResponse {
            name: "demo-1".into(),
            phase: Phase::Member.into(),
            role: Role::Leader.into(),
            version: "0.1.0".into(),
            ready: true,
            members: vec![MemberView {
                name: "demo-2".into(),
                learner: true,
                id: 0xab,
                ..MemberView::default()
            }],
            ..DescribeResponse::default()
        };
        let text = summary(&described);
        assert!(
            text.starts_with("demo-1 MEMBER (LEADER), 0.1.0, ready\n"),
            "{text}"
        );
        assert!(
            text.contains("demo-2               learner  00000000000000ab"),
            "{text}"
        );
    }

    #[test]
    fn ports_are_one_line_each() {
        let mut security = PortSecurity {
            tls: true,
            not_after_ms: 1_777_863_721_000,
            ..PortSecurity::default()
        };
        assert_eq!(
            port("peer", Some(&security)),
            "peer port: TLS; its certificate ends 2026-05-04T03:02:01Z\n"
        );
        security.plaintext_accepted = true;
        assert!(port("peer", Some(&security)).starts_with("peer port: TLS, and plain text too;"));
        security.tls = false;
        assert_eq!(port("client", Some(&security)), "client port: no TLS\n");
        assert_eq!(port("client", None), "", "an older server");
    }
}
