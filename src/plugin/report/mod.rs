//! `kubectl quorate report`: everything that a person needs who helps with a cluster, in one archive: its objects, events and
//! logs, and what the operator logs. Changes nothing in Kubernetes, and keeps the content of Secrets out of the archive.

mod archive;
mod collect;
mod redact;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube_core::ResourceExt as _;

use super::ask;
use super::error::Error;
use super::{Operators, Which, screen, system};
use archive::Archive;

/// Writes an archive with the objects, events and logs of a cluster and of its operator, for whoever is to help. What Secrets
/// hold, and the values of environment variables, are left out.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// Name of the EtcdCluster; optional if there is only one.
    name: Option<String>,
    /// The archive to write, which must not exist; `-` for standard output. By default
    /// quorate-report-NAMESPACE-NAME-TIME.tar.gz in the current folder.
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Logs from this span before now, such as 5m or 48h.
    #[arg(long, default_value = "24h")]
    since: String,
    /// Lines of each container at most.
    #[arg(long, default_value_t = 20_000)]
    tail: u32,
    /// Leave out logs, which contain the beginnings of keys where requests were slow.
    #[arg(long)]
    no_logs: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    operators: Operators,
}

/// Writes the archive. Returns what is to be printed.
pub(super) fn run(asked: &Report) -> Result<String, Error> {
    let resource = ask::object(&asked.which, asked.name.as_deref())?;
    let cluster = ask::known(resource.clone())?;
    let observation = screen::Observation {
        events: ask::events(&asked.which, &cluster)?,
        operator: ask::operator(&asked.which, &asked.operators),
        cluster,
    };
    let now = Timestamp::now();
    let cluster = &observation.cluster;
    let namespace = cluster.namespace().unwrap_or_default();
    let title = format!(
        "quorate-report-{namespace}-{}-{}",
        cluster.name_any(),
        now.strftime("%Y%m%dT%H%M%SZ")
    );
    let mut archive = Archive::new(&title, now);
    archive.add("status.txt", screen::status(&observation, now).into_bytes());
    archive.add_json("cluster.json", redact::object(resource));
    let logs = (!asked.no_logs).then(|| collect::LogLimits {
        since: asked.since.clone(),
        tail: asked.tail,
    });
    let missing = collect::all(&asked.which, &observation, logs.as_ref(), &mut archive);
    if !missing.is_empty() {
        archive.add("missing.txt", (missing.join("\n") + "\n").into_bytes());
    }
    let files = archive.files();
    let bytes = archive.finish().map_err(Error::Unpacked)?;
    let path = asked
        .output
        .clone()
        .unwrap_or_else(|| format!("{title}.tar.gz").into());
    if path == Path::new("-") {
        let mut output = std::io::stdout().lock();
        output
            .write_all(&bytes)
            .and_then(|()| output.flush())
            .map_err(Error::Unprinted)?;
        return Ok(String::new());
    }
    write(&path, &bytes).map_err(|error| Error::Unstored(path.display().to_string(), error))?;
    let lacks = match missing.len() {
        0 => String::new(),
        count => format!("; {count} could not be read: missing.txt in it says why"),
    };
    Ok(format!("{}: {files} files{lacks}\n", path.display()))
}

/// A new file that its owner alone may read. None is left that is not whole.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    system::private_file(&mut options);
    let mut file = options.open(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}
