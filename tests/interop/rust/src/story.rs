//! The story that every client runs, with the Rust client etcd-client: story HOST:PORT...
//!
//! Prints a line for each completed chapter. "please kill the leader" requests this of the test that runs the program,
//! which responds with a line on standard input.

use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmType, Client, CompactionOptions, Compare, CompareOp, ConnectOptions,
    DeleteOptions, Error, EventType, GetOptions, LeaseTimeToLiveOptions, LockOptions, Permission,
    PermissionType, PutOptions, ResignOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    WatchOptions,
};

/// The timeout of a chapter.
const PATIENCE: Duration = Duration::from_secs(60);
/// The timeout of a call.
const CALL: Duration = Duration::from_secs(10);

type Outcome = Result<(), Error>;

/// A client of these members.
async fn client(members: &[String], user: Option<(&str, &str)>) -> Result<Client, Error> {
    let mut options = ConnectOptions::new();
    if let Some((name, password)) = user {
        options = options.with_user(name, password);
    }
    Client::connect(members, Some(options)).await
}

/// Requests something of the test that runs this program, and waits until it is done.
async fn please(what: &str) {
    println!("please {what}");
    let read = || std::io::stdin().read_line(&mut String::new());
    let read = tokio::task::spawn_blocking(read).await;
    read.expect("no panic").expect("an answer");
}

/// The message of an error.
fn refusal<T>(answer: Result<T, Error>) -> String {
    match answer {
        Ok(_) => "no refusal".to_owned(),
        Err(Error::GRpcStatus(status)) => status.message().to_owned(),
        Err(other) => other.to_string(),
    }
}

// Shows KV.Put, KV.Range, KV.RangeStream, KV.DeleteRange: Rust client etcd-client.
async fn keys(members: &[String]) -> Outcome {
    let mut etcd = client(members, None).await?;
    let first = etcd.put("rs/a", "1", None).await?;
    let previous = Some(PutOptions::new().with_prev_key());
    let second = etcd.put("rs/a", "2", previous).await?;
    assert_eq!(second.prev_key().expect("a previous value").value(), b"1");
    let revision = first.header().expect("a header").revision();
    assert_eq!(second.header().expect("a header").revision(), revision + 1);
    etcd.put("rs/b", "1", None).await?;
    let old = Some(GetOptions::new().with_revision(revision));
    assert_eq!(etcd.get("rs/a", old).await?.kvs()[0].value(), b"1");
    let page = GetOptions::new().with_prefix().with_limit(1);
    let page = page.with_sort(SortTarget::Key, SortOrder::Descend);
    let page = etcd.get("rs/", Some(page)).await?;
    assert!(page.count() == 2 && page.more(), "{page:?}");
    assert_eq!(page.kvs()[0].key(), b"rs/b");
    let future = Some(GetOptions::new().with_revision(1 << 40));
    let error = refusal(etcd.get("rs/a", future).await);
    assert!(error.contains("future revision"), "{error}");
    let error = refusal(etcd.put("", "", None).await);
    assert!(error.contains("key is not provided"), "{error}");
    let prefix = Some(GetOptions::new().with_prefix());
    let mut stream = etcd.kv_client().get_stream("rs/", prefix).await?;
    let mut streamed = 0;
    while let Some(piece) = stream.message().await? {
        streamed += piece.kvs().len();
    }
    assert_eq!(streamed, 2);
    let all = DeleteOptions::new().with_prefix().with_prev_key();
    let gone = etcd.delete("rs/", Some(all)).await?;
    assert!(
        gone.deleted() == 2 && gone.prev_kvs().len() == 2,
        "{gone:?}"
    );
    Ok(())
}

// Shows KV.Txn: Rust client etcd-client, nested.
async fn transactions(members: &[String]) -> Outcome {
    let mut etcd = client(members, None).await?;
    let create = |value: &str| {
        let nested = Txn::new().and_then([TxnOp::get("rs/t", None)]);
        Txn::new()
            .when([Compare::create_revision("rs/t", CompareOp::Equal, 0)])
            .and_then([TxnOp::put("rs/t", value, None)])
            .or_else([TxnOp::get("rs/t", None), TxnOp::txn(nested)])
    };
    assert!(etcd.txn(create("1")).await?.succeeded());
    let answer = etcd.txn(create("2")).await?;
    assert!(!answer.succeeded(), "{answer:?}");
    let answers = answer.op_responses();
    let [TxnOpResponse::Get(get), TxnOpResponse::Txn(nested)] = &answers[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(get.kvs()[0].value(), b"1");
    let answers = nested.op_responses();
    let [TxnOpResponse::Get(get)] = &answers[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(get.kvs()[0].value(), b"1");
    let put = || TxnOp::put("rs/t", "3", None);
    let error = refusal(etcd.txn(Txn::new().and_then([put(), put()])).await);
    assert!(error.contains("duplicate key"), "{error}");
    Ok(())
}

// Shows Lease.LeaseGrant, Lease.LeaseKeepAlive, Lease.LeaseTimeToLive, Lease.LeaseRevoke: Rust client etcd-client.
async fn leases(members: &[String]) -> Outcome {
    let mut etcd = client(members, None).await?;
    let lease = etcd.lease_grant(600, None).await?.id();
    let leased = || Some(PutOptions::new().with_lease(lease));
    etcd.put("rs/l", "1", leased()).await?;
    let (mut keeper, mut kept) = etcd.lease_keep_alive(lease).await?;
    keeper.keep_alive().await?;
    let answer = kept.message().await?.expect("an answer");
    assert!(answer.ttl() == 600 && answer.id() == lease, "{answer:?}");
    let keys = Some(LeaseTimeToLiveOptions::new().with_keys());
    let left = etcd.lease_time_to_live(lease, keys).await?;
    assert!(left.granted_ttl() == 600 && left.ttl() > 0, "{left:?}");
    assert_eq!(left.keys(), [b"rs/l"]);
    etcd.lease_revoke(lease).await?;
    assert_eq!(etcd.get("rs/l", None).await?.count(), 0);
    let error = refusal(etcd.put("rs/l", "1", leased()).await);
    assert!(error.contains("lease not found"), "{error}");
    Ok(())
}

// Shows KV.Compact: Rust client etcd-client.
async fn compaction(members: &[String]) -> Outcome {
    let mut etcd = client(members, None).await?;
    let revision =
        |header: Option<&etcd_client::ResponseHeader>| header.expect("a header").revision();
    let old = revision(etcd.put("rs/c", "1", None).await?.header());
    let last = revision(etcd.put("rs/c", "2", None).await?.header());
    let physical = || Some(CompactionOptions::new().with_physical());
    etcd.compact(last, physical()).await?;
    let error = refusal(etcd.compact(last, physical()).await);
    assert!(error.contains("has been compacted"), "{error}");
    let before = Some(GetOptions::new().with_revision(old));
    let error = refusal(etcd.get("rs/c", before).await);
    assert!(error.contains("has been compacted"), "{error}");
    Ok(())
}

// Shows Maintenance.Status, Maintenance.Hash, Maintenance.HashKV, Maintenance.Alarm, Maintenance.Defragment, Maintenance.Snapshot, Cluster.MemberList: Rust client etcd-client.
async fn maintenance(members: &[String]) -> Outcome {
    for member in members {
        let mut etcd = client(std::slice::from_ref(member), None).await?;
        let status = etcd.status().await?;
        assert!(status.version().starts_with("3."), "{status:?}");
        assert!(status.db_size() > 0 && status.leader() != 0, "{status:?}");
        assert!(!status.is_learner() && status.errors().is_empty());
        assert_ne!(etcd.hash_kv(0).await?.hash(), 0);
        assert_ne!(etcd.hash().await?.hash(), 0);
        etcd.defragment().await?;
        let list = etcd.member_list().await?;
        assert_eq!(list.members().len(), members.len());
        let alarms = etcd.alarm(AlarmAction::Get, AlarmType::None, None).await?;
        assert_eq!(alarms.alarms().len(), 0, "{alarms:?}");
        let (mut snapshot, mut left, mut size) = (etcd.snapshot().await?, u64::MAX, 0);
        while let Some(piece) = snapshot.message().await? {
            assert!(piece.remaining_bytes() <= left, "{left}");
            left = piece.remaining_bytes();
            size += piece.blob().len();
        }
        // Whole pages, followed by a SHA-256 digest.
        assert!(left == 0 && size % 512 == 32, "{size} with {left} missing");
    }
    Ok(())
}

/// Clients increment one counter under one lock.
// Shows Lock.Lock, Lock.Unlock: Rust client etcd-client.
async fn locks(members: &[String]) -> Outcome {
    let count = |member: String| async move {
        let mut etcd = client(&[member], None).await?;
        let lease = etcd.lease_grant(30, None).await?.id();
        for _ in 0..5 {
            let own = Some(LockOptions::new().with_lease(lease));
            let lock = etcd.lock("rs/lock", own).await?;
            let old = etcd.get("rs/count", None).await?;
            let old = old
                .kvs()
                .first()
                .map_or("0", |kv| kv.value_str().expect("text"));
            let new: u64 = old.parse::<u64>().expect("a number") + 1;
            etcd.put("rs/count", new.to_string(), None).await?;
            etcd.unlock(lock.key()).await?;
        }
        etcd.lease_revoke(lease).await?;
        Ok::<(), Error>(())
    };
    let counting: Vec<_> = members
        .iter()
        .map(|member| tokio::spawn(count(member.clone())))
        .collect();
    for one in counting {
        one.await.expect("no panic")?;
    }
    let mut etcd = client(members, None).await?;
    let count = etcd.get("rs/count", None).await?;
    assert_eq!(
        count.kvs()[0].value(),
        (5 * members.len()).to_string().as_bytes()
    );
    Ok(())
}

// Shows Election.Campaign, Election.Leader, Election.Observe, Election.Resign: Rust client etcd-client.
async fn elections(members: &[String]) -> Outcome {
    // A single member: another one may not have applied the lease yet.
    let member = &members[..1];
    let mut etcd = client(member, None).await?;
    let one = etcd.lease_grant(30, None).await?.id();
    let two = etcd.lease_grant(30, None).await?.id();
    let won = etcd.campaign("rs-election", "one", one).await?;
    let own = won.leader().expect("a leader's key").clone();
    let mut observed = etcd.observe("rs-election").await?;
    let mut other = client(member, None).await?;
    let waiting = tokio::spawn(async move { other.campaign("rs-election", "two", two).await });
    let value = |answer: &etcd_client::LeaderResponse| answer.kv().expect("a key").value().to_vec();
    assert_eq!(value(&etcd.leader("rs-election").await?), b"one");
    assert_eq!(value(&observed.message().await?.expect("a leader")), b"one");
    etcd.resign(Some(ResignOptions::new().with_leader(own)))
        .await?;
    let own = waiting.await.expect("no panic")?;
    let own = own.leader().expect("a leader's key").clone();
    assert_eq!(value(&etcd.leader("rs-election").await?), b"two");
    assert_eq!(value(&observed.message().await?.expect("a leader")), b"two");
    etcd.resign(Some(ResignOptions::new().with_leader(own)))
        .await?;
    etcd.lease_revoke(one).await?;
    etcd.lease_revoke(two).await?;
    Ok(())
}

/// Receives every event once, in order. The library leaves it to its user to watch again after the last revision
/// received, here at another member.
// Shows Watch.Watch: Rust client etcd-client resumes over a killed leader.
async fn watch_over_kill(members: &[String]) -> Outcome {
    const LAST: usize = 30;
    let mut etcd = client(members, None).await?;
    let start = etcd.put("rs/start", "", None).await?;
    let start = start.header().expect("a header").revision();
    // One watch starts at each member, so that one of them is connected to the leader.
    let watching: Vec<_> = (0..members.len())
        .map(|first| tokio::spawn(watch(members.to_vec(), first, start, LAST)))
        .collect();
    for number in 0..LAST {
        if number == 10 {
            please("kill the leader").await;
        }
        if number == 20 {
            please("restart it").await;
        }
        // A put that failed may have been applied; a transaction that creates the key is applied once, however often
        // it is retried.
        let key = format!("rs/w/{number:02}");
        loop {
            let create = Txn::new()
                .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
                .and_then([TxnOp::put(key.as_str(), "", None)]);
            if let Ok(Ok(_)) = tokio::time::timeout(CALL, etcd.txn(create)).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let all: Vec<String> = (0..LAST)
        .map(|number| format!("rs/w/{number:02}"))
        .collect();
    for one in watching {
        assert_eq!(one.await.expect("no panic"), all);
    }
    Ok(())
}

/// Watches through one member after another until this many events were received.
async fn watch(members: Vec<String>, first: usize, mut revision: i64, last: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for member in members.iter().cycle().skip(first) {
        let _ = watch_member(member, &mut revision, last, &mut seen).await;
        if seen.len() >= last {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    seen
}

/// Watches through one member until the watch fails.
async fn watch_member(
    member: &String,
    revision: &mut i64,
    last: usize,
    seen: &mut Vec<String>,
) -> Outcome {
    let mut etcd = client(std::slice::from_ref(member), None).await?;
    let options = WatchOptions::new().with_prefix();
    let options = options.with_start_revision(*revision + 1);
    let mut stream = etcd.watch("rs/w/", Some(options)).await?;
    while let Some(answer) = stream.message().await? {
        for event in answer.events() {
            let kv = event.kv().expect("a key");
            assert!(event.event_type() == EventType::Put && kv.mod_revision() > *revision);
            *revision = kv.mod_revision();
            seen.push(kv.key_str().expect("text").to_owned());
        }
        if answer.canceled() || seen.len() >= last {
            break;
        }
    }
    Ok(())
}

/// Last, because enabling authentication refuses all other clients for a while. A single member: another one may apply
/// the change later.
// Shows Auth.AuthEnable, Auth.AuthDisable, Auth.Authenticate, Auth.UserAdd, Auth.UserGrantRole, Auth.RoleAdd, Auth.RoleGrantPermission: Rust client etcd-client.
async fn users(members: &[String]) -> Outcome {
    let member = &members[..1];
    let mut etcd = client(member, None).await?;
    etcd.user_add("root", "secret", None).await?;
    etcd.role_add("root").await?;
    etcd.user_grant_role("root", "root").await?;
    etcd.user_add("reader", "secret", None).await?;
    etcd.role_add("reading").await?;
    let own = Permission::new(PermissionType::Read, "rs/u/").with_prefix();
    etcd.role_grant_permission("reading", own).await?;
    etcd.user_grant_role("reader", "reading").await?;
    assert_eq!(etcd.user_get("reader").await?.roles(), ["reading"]);
    etcd.put("rs/u/a", "1", None).await?;
    etcd.auth_enable().await?;
    let error = refusal(etcd.get("rs/u/a", None).await);
    assert!(error.contains("user name is empty"), "{error}");
    let error = refusal(client(member, Some(("reader", "wrong"))).await);
    assert!(error.contains("authentication failed"), "{error}");
    let mut reader = client(member, Some(("reader", "secret"))).await?;
    assert_eq!(reader.get("rs/u/a", None).await?.kvs()[0].value(), b"1");
    let error = refusal(reader.put("rs/u/a", "2", None).await);
    assert!(error.contains("permission denied"), "{error}");
    let error = refusal(reader.get("rs/a", None).await);
    assert!(error.contains("permission denied"), "{error}");
    let mut root = client(member, Some(("root", "secret"))).await?;
    root.put("rs/u/a", "2", None).await?;
    root.auth_disable().await?;
    assert_eq!(etcd.get("rs/u/a", None).await?.kvs()[0].value(), b"2");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let members: Vec<String> = std::env::args().skip(1).collect();
    macro_rules! run {
        ($name:literal, $chapter:ident) => {
            let result = tokio::time::timeout(PATIENCE, $chapter(&members)).await;
            match result {
                Ok(Ok(())) => println!("ok: {}", $name),
                Ok(Err(error)) => panic!("{}: {error}", $name),
                Err(_) => panic!("{}: took too long", $name),
            }
        };
    }
    run!("keys", keys);
    run!("transactions", transactions);
    run!("leases", leases);
    run!("compaction", compaction);
    run!("maintenance", maintenance);
    run!("locks", locks);
    run!("elections", elections);
    run!("a watch over a killed leader", watch_over_kill);
    run!("users", users);
}
