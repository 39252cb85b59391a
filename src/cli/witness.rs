//! `quorate witness`: writes to a cluster continuously, and verifies afterwards that every acknowledged write exists.
//! For the end-to-end tests, and for watching a cluster during an upgrade. It never deletes or changes a key that it
//! did not write.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::sync::watch;

use crate::operator::local::writer::{Client, Writer};

/// How often the stop key is checked.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Writes continuously, then verifies that every acknowledged write exists.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Client endpoints of the cluster, comma-separated.
    #[arg(long, required = true, value_delimiter = ',')]
    endpoints: Vec<String>,
    /// Prefix of the written keys; use different prefixes for several witnesses.
    #[arg(long, default_value = "witness/")]
    prefix: String,
    /// Duration in seconds; 0 writes until the key `<prefix>stop` exists.
    #[arg(long, default_value_t = 0)]
    seconds: u64,
    /// How many failed writes are tolerated.
    #[arg(long, default_value_t = 0)]
    allow_failed: u64,
}

/// Runs the subcommand. Exit code 0 only if every acknowledged write was found and no more than
/// the allowed number of writes failed.
pub(super) fn run(arguments: Arguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("quorate witness: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(watch_over(arguments))
}

async fn watch_over(arguments: Arguments) -> ExitCode {
    let (_keep, endpoints) = watch::channel(arguments.endpoints.clone());
    // The stop key is not under the written keys' prefix, so that it is not found when reading back.
    let prefix = format!("{}writes/", arguments.prefix);
    let writer = Writer::start(endpoints.clone(), &prefix);
    println!("writing to {}", arguments.endpoints.join(", "));
    if arguments.seconds > 0 {
        tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    } else {
        until_stopped(Client::new(endpoints), &format!("{}stop", arguments.prefix)).await;
    }
    match writer.stop_and_verify().await {
        Err(error) => {
            println!("reading back failed: {error}");
            ExitCode::FAILURE
        }
        Ok((tally, verdict)) => {
            println!(
                "{} writes acknowledged, {} found, {} missing, {} failed, {} attempts repeated, longest {} ms",
                tally.acknowledged,
                verdict.found,
                verdict.missing.len(),
                tally.failed,
                tally.repeated,
                tally.longest.as_millis()
            );
            if let Some(error) = &tally.last_error {
                println!("the last attempt without an answer: {error}");
            }
            for key in verdict.missing.iter().take(10) {
                println!("missing: {key}");
            }
            let kept = verdict.missing.is_empty()
                && tally.acknowledged > 0
                && tally.failed <= arguments.allow_failed;
            ExitCode::from(u8::from(!kept))
        }
    }
}

async fn until_stopped(mut client: Client, key: &str) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if client.list(key).await.is_ok_and(|found| !found.is_empty()) {
            return;
        }
    }
}
