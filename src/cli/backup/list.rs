//! `quorate backup list`.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::store::Backups;
use super::{print_json, printable};
use crate::backup::Error;
use crate::backup::archive::Overview;
use crate::backup::manifest::{Manifest, Verification};
use crate::backup::repository::Stored;
use crate::backup_plan::size;

/// Lists backups, the oldest first, with what is known against each.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    backups: Backups,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Error> {
    let (repository, keys) = arguments.backups.open()?;
    let stored = repository.list(&keys).await?;
    let archives = repository.archives(&keys).await?;
    let rows: Vec<Row> = stored.iter().map(Row::new).collect();
    let archives: Vec<Line> = archives.iter().map(Line::new).collect();
    match arguments.json {
        // Those who read backups alone find no field of theirs in the others.
        true => {
            let rows = rows.iter().map(Either::Backup);
            let lines = archives.iter().map(Either::Archive);
            print_json(&rows.chain(lines).collect::<Vec<_>>())?;
        }
        false => {
            print!("{}", table(&rows));
            archives.iter().for_each(|line| println!("{}", line.text()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verification: Option<Verification>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Manifest>,
}

impl Row {
    fn new(stored: &Stored) -> Row {
        let damage = stored.damage();
        let unreadable = match &stored.manifest {
            Some(Err(unreadable)) => Some(unreadable.what.clone()),
            _ => None,
        };
        let state = match (&stored.manifest, &damage) {
            (None, _) => "Incomplete",
            (Some(_), Some(_)) => "Damaged",
            (Some(Err(_)), None) => "Unreadable",
            (Some(_), None) if stored.verified() => "Verified",
            (Some(_), None) => "Complete",
        };
        Row {
            id: stored.id.clone(),
            state,
            message: damage.or(unreadable),
            verification: stored.verification.clone(),
            manifest: stored.manifest.clone().and_then(Result::ok),
        }
    }
}

/// What `--json` prints of each.
#[derive(Serialize)]
#[serde(untagged)]
enum Either<'a> {
    Backup(&'a Row),
    Archive(&'a Line),
}

/// The archive of a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// ID of the cluster.
    archive_of: String,
    /// The newest entries without a hole.
    first: u64,
    last: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<jiff::Timestamp>,
    objects: usize,
    stored: u64,
}

impl Line {
    fn new(overview: &Overview) -> Line {
        Line {
            archive_of: format!("{:x}", overview.cluster_id),
            first: overview.run.first,
            last: overview.run.last,
            as_of: overview.as_of,
            objects: overview.objects,
            stored: overview.stored,
        }
    }

    fn text(&self) -> String {
        let as_of = match self.as_of {
            Some(as_of) => as_of.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            None => "an unknown time".to_owned(),
        };
        format!(
            "archive of the cluster {}: entries {} to {} as of {as_of}, {} in {} objects",
            self.archive_of,
            self.first,
            self.last,
            size(self.stored),
            self.objects
        )
    }
}

fn table(rows: &[Row]) -> String {
    let mut cells = vec![
        [
            "BACKUP", "STATE", "REVISION", "KEYS", "SIZE", "STORED", "TIME", "RECOVERY",
        ]
        .map(str::to_owned),
    ];
    for row in rows {
        let mut line = std::array::from_fn(|_| "-".to_owned());
        row.id.clone_into(&mut line[0]);
        row.state.clone_into(&mut line[1]);
        if let Some(manifest) = &row.manifest {
            let stored: u64 = manifest.parts.iter().map(|part| part.stored).sum();
            line[2] = manifest.snapshot.revision.to_string();
            line[3] = manifest.snapshot.keys.to_string();
            line[4] = size(manifest.snapshot.size);
            line[5] = size(stored);
            line[6] = manifest.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        }
        if let Some(it) = row.verification.as_ref().filter(|it| it.failure.is_none()) {
            line[7] = format!("{:.1} s", it.seconds);
        }
        cells.push(line);
    }
    let mut widths = [0; 8];
    for line in &cells {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    for (index, line) in cells.iter().enumerate() {
        let padded = line
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let padded: Vec<String> = padded.collect();
        text += padded.join("   ").trim_end();
        text.push('\n');
        if let Some(message) = index
            .checked_sub(1)
            .and_then(|at| rows[at].message.as_ref())
        {
            text += &format!("  {}\n", printable(message));
        }
    }
    text
}
