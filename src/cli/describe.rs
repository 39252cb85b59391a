//! `quorate describe`: what one server says of itself and of its cluster, asked on its peer port.
//! Reads only. Meant for `kubectl exec` in a member's pod, where the secret is mounted.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::server::member_client::MemberClient;
use crate::server::operator_auth::Key;
use crate::wire::member::{DescribeResponse, Phase, Role};

/// A server that does not answer within this is reported as such.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server says of itself and of its cluster.
#[derive(Debug, Parser)]
#[command(name = "quorate describe")]
struct Arguments {
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
    /// Only the last 64 changes of the configuration, oldest first: one "KIND NAME" a line.
    #[arg(long)]
    changes: bool,
}

/// Runs the subcommand.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match ask(&arguments) {
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let described = runtime.block_on(async {
        let mut client = MemberClient::new(&arguments.address, key, PATIENCE, None)
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
}
