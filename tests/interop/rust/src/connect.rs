//! An application that has nothing but the files of a connection Secret, with the Rust client etcd-client: connect
//! DIRECTORY OTHER. The CA of OTHER is not that of the members.
//!
//! Prints a line for each completed chapter. A line that begins with "please" is a request to the test that runs
//! the program, which responds with a line on standard input.

use std::path::Path;
use std::time::Duration;

use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, Identity,
    PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};

/// The timeout of all chapters together.
const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<(), Error>;

// On the page docs/tasks/clients.md.
async fn connect(directory: &Path) -> Result<Client, Error> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name));
    let identity = Identity::from_pem(read("tls.crt")?, read("tls.key")?);
    let authority = Certificate::from_pem(read("ca.crt")?);
    let tls = TlsOptions::new()
        .ca_certificate(authority)
        .identity(identity);
    let mut options = ConnectOptions::new().with_tls(tls);
    if let Ok(password) = read("password") {
        options = options.with_user(read("username")?, password);
        options = options.with_auto_token_refresh(true);
    }
    let endpoints: Vec<String> = read("endpoints")?.split(',').map(str::to_owned).collect();
    Client::connect(endpoints, Some(options)).await
}

/// Checks that a call is refused with this message.
fn refused<T>(words: &str, answer: Result<T, Error>) {
    match answer {
        Ok(_) => panic!("not refused"),
        Err(error) => assert!(error.to_string().contains(words), "{error}"),
    }
}

async fn keys(etcd: &mut Client, prefix: &str) -> Outcome {
    etcd.put(format!("{prefix}a"), "1", None).await?;
    let all = Some(GetOptions::new().with_prefix());
    let found = etcd.get(prefix, all).await?;
    assert!(
        found.count() == 1 && found.kvs()[0].value() == b"1",
        "{found:?}"
    );
    Ok(())
}

async fn watch(etcd: &mut Client, prefix: &str) -> Outcome {
    let put = etcd.put(format!("{prefix}a"), "2", None).await?;
    let revision = put.header().expect("a header").revision();
    let from = WatchOptions::new()
        .with_prefix()
        .with_start_revision(revision);
    let mut stream = etcd.watch(prefix, Some(from)).await?;
    loop {
        let answer = stream.message().await?.expect("an answer");
        if let Some(event) = answer.events().first() {
            assert_eq!(event.kv().expect("a key").value(), b"2");
            return Ok(());
        }
    }
}

async fn lease(etcd: &mut Client, prefix: &str) -> Outcome {
    let lease = etcd.lease_grant(600, None).await?.id();
    let leased = Some(PutOptions::new().with_lease(lease));
    etcd.put(format!("{prefix}leased"), "1", leased).await?;
    let (mut keeper, mut kept) = etcd.lease_keep_alive(lease).await?;
    keeper.keep_alive().await?;
    assert_eq!(kept.message().await?.expect("an answer").ttl(), 600);
    etcd.lease_revoke(lease).await?;
    assert_eq!(etcd.get(format!("{prefix}leased"), None).await?.count(), 0);
    Ok(())
}

async fn transaction(etcd: &mut Client, prefix: &str) -> Outcome {
    let key = format!("{prefix}a");
    let transaction = Txn::new()
        .when([Compare::value(key.as_str(), CompareOp::Equal, "2")])
        .and_then([TxnOp::put(key.as_str(), "3", None)]);
    assert!(etcd.txn(transaction).await?.succeeded());
    Ok(())
}

async fn nothing_else(etcd: &mut Client) {
    refused("permission denied", etcd.put("/other/a", "1", None).await);
    refused("permission denied", etcd.get("/other/a", None).await);
}

async fn please(what: &str) {
    println!("please {what}");
    let read = || std::io::stdin().read_line(&mut String::new());
    let read = tokio::task::spawn_blocking(read).await;
    read.expect("no panic").expect("an answer");
}

/// The members forget the token of a login, as they do in a restart: the library logs in again, because it was asked to.
async fn forgotten(etcd: &mut Client, prefix: &str) -> Outcome {
    please("forget the tokens").await;
    etcd.put(format!("{prefix}a"), "4", None).await?;
    Ok(())
}

/// Members with a certificate of another CA are not trusted.
async fn other_authority(other: &Path, prefix: &str) {
    let answer = async { connect(other).await?.get(prefix, None).await };
    if let Ok(answer) = tokio::time::timeout(Duration::from_secs(2), answer).await {
        assert!(answer.is_err(), "a certificate of another CA was accepted");
    }
}

/// The password before is worth nothing, and the files read again are enough.
async fn renewed(directory: &Path, prefix: &str) -> Outcome {
    let mut before = connect(directory).await?;
    let key = format!("{prefix}a");
    before.put(key.as_str(), "5", None).await?;
    please("renew the Secret").await;
    if directory.join("password").exists() {
        refused(
            "authentication failed",
            before.put(key.as_str(), "6", None).await,
        );
    }
    let mut etcd = connect(directory).await?;
    etcd.put(key.as_str(), "7", None).await?;
    Ok(())
}

async fn story(directory: &Path, other: &Path) -> Outcome {
    let prefix = format!("/{}/", std::fs::read_to_string(directory.join("username"))?);
    let mut etcd = connect(directory).await?;
    keys(&mut etcd, &prefix).await?;
    println!("ok: keys");
    watch(&mut etcd, &prefix).await?;
    println!("ok: a watch");
    lease(&mut etcd, &prefix).await?;
    println!("ok: a lease");
    transaction(&mut etcd, &prefix).await?;
    println!("ok: a transaction");
    nothing_else(&mut etcd).await;
    println!("ok: nothing else");
    forgotten(&mut etcd, &prefix).await?;
    println!("ok: a lost token");
    other_authority(other, &prefix).await;
    println!("ok: another CA");
    renewed(directory, &prefix).await?;
    println!("ok: a renewed Secret");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    let story = story(Path::new(&paths[0]), Path::new(&paths[1]));
    let told = tokio::time::timeout(PATIENCE, story).await;
    told.expect("in time").expect("no error");
}
