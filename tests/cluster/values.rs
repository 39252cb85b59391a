//! Values in files (`--feature-gates=ValuesOnDisk`): they are moved there by checkpoints, without a word once every member
//! can read them; read from there by every call, sent to members without such files, come back into the checkpoint once the
//! gate is off, and one that is damaged is an error on its member alone, until another member has healed it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate::wire::etcd::maintenance_client::MaintenanceClient;
use quorate::wire::etcd::{
    CompactionRequest, Compare, DeleteRangeRequest, HashKvRequest, MemberAddRequest,
    MemberPromoteRequest, PutRequest, RangeRequest, RequestOp, TxnRequest, compare as comparing,
    request_op,
};
use tonic::Code;

use super::fixture::{Server, by_hand, initial_cluster, until};

/// More than the log may hold beyond a checkpoint: 64 MiB.
const VALUES: usize = 70;
const VALUE: usize = 1 << 20;

fn value(number: usize) -> Vec<u8> {
    let word = format!("value {number} ");
    word.bytes().cycle().take(VALUE).collect()
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

async fn fill(server: &Server) {
    let mut kv = server.kv().max_decoding_message_size(usize::MAX);
    for number in 0..VALUES {
        let put = PutRequest {
            key: key(number).into(),
            value: value(number).into(),
            ..PutRequest::default()
        };
        until("a large value is stored", server, async || {
            kv.put(put.clone()).await.ok()
        })
        .await;
    }
}

/// Reads one key on this member alone.
async fn read(server: &Server, number: usize) -> Result<Vec<u8>, tonic::Status> {
    let range = RangeRequest {
        key: key(number).into(),
        serializable: true,
        ..RangeRequest::default()
    };
    let found = server.kv().range(range).await?.into_inner();
    Ok(found
        .kvs
        .first()
        .map(|kv| kv.value.to_vec())
        .unwrap_or_default())
}

async fn all_are_right(server: &Server) {
    for number in 0..VALUES {
        let found = read(server, number).await.expect("a read");
        assert!(found == value(number), "{}: key {number}", server.name);
    }
}

async fn hash(server: &Server) -> Option<(i64, u32)> {
    let mut client = MaintenanceClient::new(server.channel());
    let hash = client.hash_kv(HashKvRequest { revision: 0 }).await.ok()?;
    let hash = hash.into_inner();
    Some((hash.hash_revision, hash.hash))
}

/// All of them hash what they store alike, each from where it has it.
async fn hashes_are_equal(servers: &[&Server]) {
    until("all members hash alike", servers[0], async || {
        let first = hash(servers[0]).await?;
        for server in &servers[1..] {
            if hash(server).await? != first {
                return None;
            }
        }
        Some(())
    })
    .await;
}

fn value_files(data: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(data.join("values")) else {
        return Vec::new();
    };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A checkpoint names files of values: until then a file may be half written, and a start removes it.
async fn values_are_in_files(server: &Server) {
    let names_files = |path: PathBuf| {
        let whole = path.extension().is_none_or(|it| it != "tmp");
        // One that is removed meanwhile is not the newest.
        let head = std::fs::read(&path).unwrap_or_default();
        let format = head.get(8..12).map(|it| it.try_into().expect("four bytes"));
        whole && format.map(u32::from_le_bytes) == Some(2)
    };
    until("values are in files", server, async || {
        let mut entries = std::fs::read_dir(server.data.join("checkpoints")).ok()?;
        entries
            .any(|entry| names_files(entry.unwrap().path()))
            .then_some(())
    })
    .await;
}

/// Flips a bit in each copy of this value in this member's files, and says how many there were: a put that was repeated is
/// there more than once.
fn damage(server: &Server, number: usize) -> usize {
    let word = format!("value {number} ").into_bytes();
    let begin = word.repeat(2);
    let mut damaged = 0;
    for path in value_files(&server.data) {
        let mut bytes = std::fs::read(&path).unwrap();
        let begins =
            |at: &usize| bytes[*at..].starts_with(&begin) && !bytes[..*at].ends_with(&word);
        let copies: Vec<usize> = (0..bytes.len()).filter(begins).collect();
        damaged += copies.len();
        for copy in copies {
            bytes[copy + 1000] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    damaged
}

fn with_gate(servers: &mut [Server]) {
    for server in servers {
        server.arguments.extend([
            "--feature-gates=ValuesOnDisk=true".to_owned(),
            "--snapshot-count=10".to_owned(),
        ]);
    }
}

/// Puts a key if the value of this one is as expected.
async fn compare(server: &Server, number: usize, expected: Vec<u8>) -> Result<bool, tonic::Status> {
    let compare = Compare {
        result: comparing::CompareResult::Equal.into(),
        target: comparing::CompareTarget::Value.into(),
        key: key(number).into(),
        target_union: Some(comparing::TargetUnion::Value(expected.into())),
        ..Compare::default()
    };
    let put = PutRequest {
        key: b"compared".to_vec().into(),
        value: b"yes".to_vec().into(),
        ..PutRequest::default()
    };
    let txn = TxnRequest {
        compare: vec![compare],
        success: vec![RequestOp {
            request: Some(request_op::Request::RequestPut(put)),
        }],
        failure: Vec::new(),
    };
    let answer = server.kv().txn(txn).await?;
    Ok(answer.into_inner().succeeded)
}

async fn compared(server: &Server, number: usize, expected: Vec<u8>) -> bool {
    let compared = compare(server, number, expected).await;
    compared.expect("a transaction")
}

/// A member that is added with its values in memory, up to its promotion.
async fn joins(home: &Path, servers: &[Server]) -> Server {
    let mut joiner = Server::new(home, "c");
    let known = format!("{},c={}", initial_cluster(servers), joiner.peer_url());
    joiner.arguments.extend([
        format!("--initial-cluster={known}"),
        "--initial-cluster-state=existing".to_owned(),
        "--feature-gates=ValuesOnDisk=false".to_owned(),
    ]);
    let add = MemberAddRequest {
        peer_ur_ls: vec![joiner.peer_url()],
        is_learner: true,
    };
    let added = servers[0].cluster().member_add(add).await.unwrap();
    let id = added.into_inner().member.unwrap().id;
    joiner.start();
    until("it is promoted", &joiner, async || {
        let promote = MemberPromoteRequest { id };
        servers[0].cluster().member_promote(promote).await.ok()
    })
    .await;
    joiner
}

#[tokio::test]
async fn values_are_read_from_files() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b"]);
    with_gate(&mut servers);
    for server in &mut servers {
        server.start();
    }
    for server in &servers {
        server.serves("ready").await;
    }
    fill(&servers[0]).await;
    for server in &servers {
        values_are_in_files(server).await;
        until("all values are here", server, async || {
            (read(server, VALUES - 1).await.ok()? == value(VALUES - 1)).then_some(())
        })
        .await;
        all_are_right(server).await;
    }
    // The log's thread applies what compares with a value that is in a file.
    assert!(compared(&servers[0], 0, value(0)).await);
    assert!(!compared(&servers[0], 0, value(1)).await);
    hashes_are_equal(&[&servers[0], &servers[1]]).await;

    // A crash: the checkpoint names its files.
    servers[1].kill();
    servers[1].start();
    servers[1].serves("again").await;
    all_are_right(&servers[1]).await;

    // One that has its values in memory receives them from one that has not.
    let joiner = joins(home.path(), &servers).await;
    all_are_right(&joiner).await;
    assert_eq!(value_files(&joiner.data), Vec::<PathBuf>::new());
    hashes_are_equal(&[&servers[0], &servers[1], &joiner]).await;

    // The gate is off again: what is in files is read until the next checkpoint has it.
    servers[1].terminate().await;
    for argument in &mut servers[1].arguments {
        if argument.contains("ValuesOnDisk") {
            *argument = "--feature-gates=ValuesOnDisk=false".to_owned();
        }
    }
    servers[1].start();
    servers[1].serves("without the gate").await;
    all_are_right(&servers[1]).await;
    hashes_are_equal(&[&servers[0], &servers[1], &joiner]).await;
}

/// While a member is away it may come back as 0.1.0, and another one may have to go back to it as well, which cannot read
/// files of values.
#[tokio::test]
async fn values_move_once_every_member_can_read_them() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    for server in &mut servers {
        server.arguments.push("--snapshot-count=10".to_owned());
        server.start();
    }
    for server in &servers {
        server.serves("ready").await;
    }
    servers[2].terminate().await;
    for server in &mut servers[..2] {
        server.terminate().await;
        server.start();
    }
    servers[0].serves("without one").await;
    fill(&servers[0]).await;
    until("a checkpoint with values", &servers[0], async || {
        let mut entries = std::fs::read_dir(servers[0].data.join("checkpoints")).ok()?;
        let large = |length: u64| length > 32 << 20;
        entries
            .any(|entry| {
                let path = entry.unwrap().path();
                path.extension().is_none_or(|it| it != "tmp")
                    && std::fs::metadata(path).is_ok_and(|it| large(it.len()))
            })
            .then_some(())
    })
    .await;
    for server in &servers[..2] {
        assert_eq!(value_files(&server.data), Vec::<PathBuf>::new());
    }

    let told = |server: &Server| {
        let log = server.log();
        log.matches("every member can read values from files")
            .count()
    };
    let before: Vec<usize> = servers.iter().map(told).collect();
    servers[2].start();
    servers[2].serves("all").await;
    // One checkpoint is due in what follows, and no member may take it before it may have files.
    for (server, before) in servers.iter().zip(before) {
        until("it may have files", server, async || {
            (told(server) > before).then_some(())
        })
        .await;
    }
    fill(&servers[0]).await;
    for server in &servers {
        values_are_in_files(server).await;
    }
    all_are_right(&servers[0]).await;
}

fn checkpoints(server: &Server) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(server.data.join("checkpoints")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_none_or(|it| it != "tmp"))
        .collect()
}

/// A value that is damaged on the disk of one member: whoever reads it there first is refused, whoever asks another one gets
/// it, and then that member has it from the others. From the next checkpoint on it is on the disk again.
#[tokio::test]
async fn damaged_value_is_healed_from_another_member() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a", "b", "c"]);
    with_gate(&mut servers[..1]);
    for server in &mut servers {
        server.start();
    }
    for server in &servers {
        server.serves("ready").await;
    }
    fill(&servers[1]).await;
    values_are_in_files(&servers[0]).await;
    servers[0].kill();
    assert!(damage(&servers[0], 0) > 0, "no file has the value");
    servers[0].start();
    servers[0].serves("again").await;
    let before = checkpoints(&servers[0]);
    let refusal = read(&servers[0], 0).await.expect_err("it is damaged");
    assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    let text = refusal.message();
    assert!(
        text.contains(".values is damaged at offset ") && text.contains("remove this member"),
        "{text}"
    );
    assert!(read(&servers[0], 1).await.expect("another one") == value(1));
    all_are_right(&servers[1]).await;
    is_healed(&servers[0], 0).await;
    let log = servers[0].log();
    assert!(log.contains("was healed from another member"), "{log}");
    hashes_are_equal(&[&servers[0], &servers[1], &servers[2]]).await;

    until("it is in a checkpoint", &servers[0], async || {
        (!checkpoints(&servers[0]).is_subset(&before)).then_some(())
    })
    .await;
    servers[0].kill();
    assert!(damage(&servers[0], 1) > 0, "no file has the value");
    servers[0].start();
    servers[0].serves("once more").await;
    let found = read(&servers[0], 0).await;
    assert!(found.expect("it was written again") == value(0));
    // To apply this it needs the other value, and waits for it: going on without would make it differ from the others.
    assert!(compared(&servers[1], 1, value(1)).await);
    is_healed(&servers[0], 1).await;
    all_are_right(&servers[0]).await;
    hashes_are_equal(&[&servers[0], &servers[1], &servers[2]]).await;
}

/// The newest checkpoint names a value that was damaged, and then deleted: nobody heals it, and no other member can be sent that
/// checkpoint. Another one is written, though there is no log that would be worth it: when the member finds out by itself, or when
/// that checkpoint could not be sent, whichever comes first.
#[tokio::test]
async fn member_joins_past_a_damaged_value_that_was_deleted() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    with_gate(&mut servers);
    servers[0].start();
    servers[0].serves("ready").await;
    fill(&servers[0]).await;
    values_are_in_files(&servers[0]).await;
    servers[0].kill();
    assert!(damage(&servers[0], 0) > 0, "no file has the value");
    servers[0].start();
    servers[0].serves("again").await;
    let before = checkpoints(&servers[0]);
    let delete = DeleteRangeRequest {
        key: key(0).into(),
        ..DeleteRangeRequest::default()
    };
    let deleted = servers[0].kv().delete_range(delete).await.unwrap();
    let revision = deleted.into_inner().header.unwrap().revision;
    let compact = CompactionRequest {
        revision,
        ..CompactionRequest::default()
    };
    servers[0].kv().compact(compact).await.unwrap();
    let joiner = joins(home.path(), &servers).await;
    assert!(read(&joiner, 0).await.expect("a read").is_empty());
    assert!(read(&joiner, 1).await.expect("a read") == value(1));
    hashes_are_equal(&[&servers[0], &joiner]).await;
    let others = !checkpoints(&servers[0]).is_subset(&before);
    assert!(others, "what was sent is another one: {}", servers[0].log());
}

async fn is_healed(server: &Server, number: usize) {
    until("the value is healed", server, async || {
        (read(server, number).await.ok()? == value(number)).then_some(())
    })
    .await;
}

/// A damaged value that nobody else has: reads of it are refused, and a member that needs it to apply an entry stops.
#[tokio::test]
async fn damaged_value_that_nobody_has_stops_its_member() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = by_hand(home.path(), &["a"]);
    with_gate(&mut servers);
    let server = &mut servers[0];
    server.start();
    server.serves("ready").await;
    fill(server).await;
    values_are_in_files(server).await;
    server.kill();
    assert!(damage(server, 0) > 0, "no file has the value");
    server.start();
    server.serves("again").await;
    for _ in 0..2 {
        let refusal = read(server, 0).await.expect_err("it is damaged");
        assert_eq!(refusal.code(), Code::Unavailable, "{refusal}");
    }
    assert!(read(server, 1).await.expect("another one") == value(1));
    assert_eq!(hash(server).await, None, "a hash would need it");
    // The entry waits for somebody to have the value, and no reader of another one waits with it.
    let meanwhile = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::time::timeout(Duration::from_secs(2), read(server, 1)).await
    };
    let (answer, meanwhile) = tokio::join!(compare(server, 0, value(0)), meanwhile);
    assert!(answer.is_err(), "{answer:?}");
    let meanwhile = meanwhile.expect("a reader waits");
    assert!(meanwhile.expect("it is not damaged") == value(1));
    let status = server.ended().await;
    assert_eq!(status.code(), Some(20), "{}", server.log());
}
