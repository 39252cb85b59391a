//! `kubectl quorate report`: everything that a person needs who helps with a cluster, in one archive: its objects, events and
//! logs, and what the operator logs. Changes nothing in Kubernetes, and keeps the content of Secrets out of the archive.

mod archive;
mod collect;
mod redact;

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::ask;
use super::error::Error;
use super::{Operators, Which, screen, system};
use archive::Archive;
use collect::{LogLimits, Named};

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
    let text = |field: &str| {
        resource["metadata"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let cluster = Named {
        namespace: text("namespace"),
        name: text("name"),
    };
    let now = Timestamp::now();
    let time = now.strftime("%Y%m%dT%H%M%SZ");
    let title = format!(
        "quorate-report-{}-{}-{time}",
        cluster.namespace, cluster.name
    );
    let path = asked
        .output
        .clone()
        .unwrap_or_else(|| format!("{title}.tar.gz").into());
    if path.exists() {
        return Err(unstored(&path, ErrorKind::AlreadyExists.into()));
    }
    let mut archive = Archive::new(&title, now);
    let missing = collected(asked, &cluster, resource, now, &mut archive);
    let files = archive.files();
    let bytes = archive.finish().map_err(Error::Unpacked)?;
    if path == Path::new("-") {
        let mut output = std::io::stdout().lock();
        let written = output.write_all(&bytes).and_then(|()| output.flush());
        return written.map(|()| String::new()).map_err(Error::Unprinted);
    }
    write(&path, &bytes).map_err(|error| unstored(&path, error))?;
    let lacks = match missing {
        0 => String::new(),
        count => format!("; {count} could not be read: missing.txt in it says why"),
    };
    Ok(format!("{}: {files} files{lacks}\n", path.display()))
}

/// Adds everything to the archive. Returns how much could not be read.
fn collected(
    asked: &Report,
    cluster: &Named,
    resource: Value,
    now: Timestamp,
    archive: &mut Archive,
) -> usize {
    let operator = ask::operator(&asked.which, &asked.operators);
    archive.add_json("cluster.json", redact::object(resource.clone()));
    let logs = (!asked.no_logs).then(|| LogLimits {
        since: asked.since.clone(),
        tail: asked.tail,
    });
    let mut missing = collect::all(&asked.which, cluster, &operator, logs.as_ref(), archive);
    match status(asked, resource, operator, now) {
        Ok(text) => archive.add("status.txt", text.into_bytes()),
        Err(error) => missing.push(format!("status.txt: {}", super::chain(&error))),
    }
    if !missing.is_empty() {
        archive.add("missing.txt", (missing.join("\n") + "\n").into_bytes());
    }
    missing.len()
}

/// What `kubectl quorate status` prints.
fn status(
    asked: &Report,
    resource: Value,
    operator: screen::Operator,
    now: Timestamp,
) -> Result<String, Error> {
    let cluster = ask::known(resource)?;
    let events = ask::events(&asked.which, &cluster)?;
    let observation = screen::Observation {
        cluster,
        events,
        operator,
    };
    Ok(screen::status(&observation, now))
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

fn unstored(path: &Path, error: std::io::Error) -> Error {
    Error::Unstored(path.display().to_string(), error)
}
