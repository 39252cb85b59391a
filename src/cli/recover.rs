//! `quorate recover`: what is left of a cluster that has lost its quorum, on hosts without an operator. Parses arguments
//! and prints; `crate::server::recover` does the work.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::chain;
use crate::backup_plan::size;
use crate::server::recover::{Choice, Content, Found, Member, choose, look, save};

/// What is left of a cluster that has lost its quorum: which data directory holds the most, and its data as a snapshot.
/// Servers are stopped before; no directory is changed.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares data directories of stopped servers, or copies of them (with their times, as `cp -a` makes them), and
    /// names the one with the longest log.
    Plan {
        /// The data directories of one cluster: all that can be found.
        #[arg(required = true)]
        directories: Vec<PathBuf>,
    },
    /// Writes the data of a directory into a new file, as `etcdctl snapshot save` does, with everything in its log: also
    /// what this member does not know to be committed.
    Save {
        /// The data directory.
        directory: PathBuf,
        /// The file.
        file: PathBuf,
    },
}

/// Runs the subcommand.
pub(super) fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.command {
        Command::Plan { directories } => {
            let found: Vec<Found> = directories.iter().map(|it| look(it)).collect();
            print!("{}", table(&found));
            match choose(&found) {
                Ok(choice) => {
                    print!("\n{}", advice(&choice));
                    ExitCode::SUCCESS
                }
                Err(why) => failed("plan", &why),
            }
        }
        Command::Save { directory, file } => match save(directory, file) {
            Ok(saved) => {
                let member = &saved.member;
                println!(
                    "saved {}: {}, revision {}, {} keys, the log to entry {} of term {}\nSHA-256 {}\n\nOn each host of the new cluster, with its own flags and a data directory that does not exist yet:\n\n  quorate restore {} --bump-revision 1000000000 --mark-compacted --name ... --data-dir ... \\\n    --initial-cluster ... --initial-advertise-peer-urls ... --initial-cluster-token ANOTHER",
                    file.display(),
                    size(saved.size),
                    member.revision,
                    member.keys,
                    member.last.index,
                    member.last.term,
                    saved.sha256,
                    file.display(),
                );
                ExitCode::SUCCESS
            }
            Err(error) => failed("save", &error),
        },
    }
}

fn failed(subcommand: &str, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("quorate recover {subcommand}: {}", chain(error));
    ExitCode::FAILURE
}

const HEAD: [&str; 10] = [
    "DIRECTORY",
    "CLUSTER",
    "INCARNATION",
    "MEMBER",
    "TERM",
    "INDEX",
    "COMMIT",
    "WRITTEN",
    "REVISION",
    "KEYS",
];

fn table(found: &[Found]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(found.iter().map(row));
    let mut widths = [0; HEAD.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let padded = line.iter().zip(widths);
        let padded: Vec<String> = padded
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += padded.join("   ").trim_end();
        text.push('\n');
        let found = at.checked_sub(1).map(|at| &found[at].content);
        if let Some(Content::Unusable { why, .. }) = found {
            text += &format!("  {why}\n");
        }
    }
    text
}

fn row(found: &Found) -> [String; HEAD.len()] {
    let mut cells = std::array::from_fn(|_| "-".to_owned());
    cells[0] = found.directory.display().to_string();
    let state = match &found.content {
        Content::Member(it) => {
            let rest = [
                format!("{:x}", it.cluster_id),
                it.incarnation.to_string(),
                format!("{:x} ({})", it.member_id, it.name),
                it.last.term.to_string(),
                it.last.index.to_string(),
                it.commit.to_string(),
                written(it),
                it.revision.to_string(),
                it.keys.to_string(),
            ];
            cells[1..].clone_from_slice(&rest);
            return cells;
        }
        Content::Empty => "empty",
        Content::Removed => "removed",
        Content::Running => "running",
        Content::Unusable { state, .. } => state,
    };
    state.clone_into(&mut cells[1]);
    cells
}

fn written(member: &Member) -> String {
    let at = member.appended_ms.map(Timestamp::from_millisecond);
    match at {
        Some(Ok(at)) => at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        _ => "unknown".to_owned(),
    }
}

fn advice(choice: &Choice<'_>) -> String {
    let (directory, member) = (choice.directory.display(), choice.member);
    let last = member.last;
    let mut text = format!(
        "{directory} holds the longest log: to entry {} of term {}, written {}.\n",
        last.index,
        last.term,
        written(member)
    );
    let open = last.index.saturating_sub(member.commit);
    if open > 0 {
        let _ = writeln!(
            text,
            "Not known here to be committed: the last {open} of its entries. They are kept, since they may have been acknowledged."
        );
    }
    for left_out in &choice.left_out {
        let _ = writeln!(
            text,
            "{} was not compared: if it can be repaired, and its log is longer, it holds more.",
            left_out.display()
        );
    }
    if choice.has_quorum() {
        let _ = writeln!(
            text,
            "{} of {} voters are here, and {} are a quorum: nothing is lost. Start the servers of these directories again; no new cluster is needed.",
            choice.present,
            member.voters.len(),
            choice.quorum
        );
        return text;
    }
    let _ = write!(
        text,
        "{} of {} voters are here, and {} are a quorum. Lost at most: what was acknowledged after that entry, if it was stored on the disks that are missing alone.\n\nNext, with no server of this cluster running:\n\n  quorate recover save {directory} recovered.db\n",
        choice.present,
        member.voters.len(),
        choice.quorum
    );
    text
}
