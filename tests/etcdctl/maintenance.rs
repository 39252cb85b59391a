//! endpoint status, health and hashkv, move-leader, and the other commands for a running member.

use crate::cluster::{Cluster, Kind};
use crate::process::{eventually, peers};
use crate::story::compare;

// Shows Maintenance.Status, Maintenance.Defragment: every member returns its status; defragmentation succeeds.
#[test]
fn every_member_reports_status_and_health() {
    let Some(peers) = peers("every_member_reports_status_and_health") else {
        return;
    };
    let cluster = Cluster::start(Kind::Quorate, &peers, 3);
    cluster.must(0, &["put", "a", "1"]);
    let leader = cluster.leader();
    for at in 0..3 {
        let status = &cluster.json(at, &["endpoint", "status"])[0]["Status"];
        let number = |field: &str| status[field].as_u64().unwrap_or_default();
        assert!(
            status["version"]
                .as_str()
                .is_some_and(|v| v.starts_with("3.7.")),
            "{status}"
        );
        assert_eq!(
            format!("{:x}", number("leader")),
            cluster.id(leader),
            "{status}"
        );
        let own = status["header"]["member_id"].as_u64().unwrap_or_default();
        assert_eq!(format!("{own:x}"), cluster.id(at), "{status}");
        assert!(
            number("raftTerm") > 0 && number("raftIndex") > 0,
            "{status}"
        );
        assert!(
            number("raftAppliedIndex") > 0 && number("dbSize") > 0,
            "{status}"
        );
        assert!(number("dbSizeQuota") > 0, "{status}");
        assert!(status["isLearner"].as_bool() != Some(true), "{status}");
        assert!(
            status["errors"].as_array().is_none_or(Vec::is_empty),
            "{status}"
        );
        let health = cluster.ctl(at, &["endpoint", "health"], "");
        let printed = format!("{}{}", health.stdout, health.stderr);
        assert!(
            health.status == 0 && printed.contains("is healthy"),
            "{printed}"
        );
    }
    let all = cluster.must(0, &["endpoint", "status", "--cluster"]);
    assert_eq!(all.lines().count(), 3, "{all}");
}

#[test]
fn health_needs_a_quorum() {
    let Some(peers) = peers("health_needs_a_quorum") else {
        return;
    };
    let mut cluster = Cluster::start(Kind::Quorate, &peers, 3);
    let leader = cluster.leader();
    let (down, left) = ((leader + 1) % 3, (leader + 2) % 3);
    cluster.stop(leader);
    cluster.wait_healthy(left);
    cluster.must(left, &["put", "a", "1"]);
    cluster.stop(down);
    let unhealthy = eventually(|| {
        cluster
            .ctl(left, &["endpoint", "health", "--command-timeout=2s"], "")
            .status
            != 0
    });
    assert!(unhealthy, "a member without a quorum reports healthy");
    let stale = cluster.must(left, &["get", "a", "--consistency=s"]);
    assert_eq!(stale, "a\n1\n", "a serializable read needs no quorum");
    cluster.run(leader, "new");
    cluster.wait_healthy(left);
    cluster.wait_healthy(leader);
    assert_eq!(cluster.must(leader, &["get", "a"]), "a\n1\n");
}

// Shows Maintenance.MoveLeader: to a member, to an unknown ID, and sent to a follower.
#[test]
fn leadership_moves_as_in_etcd() {
    compare("leadership_moves_as_in_etcd", 3, |recorder| {
        let leader = recorder.cluster.leader();
        let target = (leader + 1) % 3;
        let id = recorder.cluster.id(target);
        let endpoints: Vec<String> = recorder
            .cluster
            .members
            .iter()
            .map(|member| member.client.clone())
            .collect();
        let wrong = recorder.cluster.ctl(target, &["move-leader", &id], "");
        let error = wrong.stderr.replace(&endpoints[target], "ENDPOINT");
        recorder.note(&format!("{} {error}", wrong.status));
        let unknown = recorder.cluster.ctl(leader, &["move-leader", "abc"], "");
        let error = unknown.stderr.lines().last().unwrap_or_default().to_owned();
        recorder.note(&format!("{} {error}", unknown.status));
        let moved = recorder.cluster.must(leader, &["move-leader", &id]);
        let before = recorder.cluster.id(leader);
        recorder.note(&moved.replace(&id, "NEW").replace(&before, "OLD"));
        let done = eventually(|| recorder.cluster.leader() == target);
        assert!(done, "the leader stayed:\n{}", recorder.cluster.logs());
        for at in 0..3 {
            // Another member may apply the change of leader a little later.
            let put = ["put", "after", "move"];
            let done = eventually(|| recorder.cluster.ctl(at, &put, "").status == 0);
            assert!(done, "member {at}:\n{}", recorder.cluster.logs());
        }
    });
}

#[test]
fn acknowledged_writes_survive_killing_all() {
    let test = "acknowledged_writes_survive_killing_all";
    let Some(peers) = peers(test) else { return };
    let mut cluster = Cluster::start(Kind::Quorate, &peers, 3);
    for number in 0..30 {
        let (key, value) = (format!("k{}", number % 7), number.to_string());
        cluster.must(number % 3, &["put", &key, &value]);
    }
    cluster.must(1, &["compaction", "15"]);
    cluster.must(2, &["del", "k3"]);
    let everything = ["get", "--prefix", "k"];
    let before = cluster.must(0, &everything);
    for at in 0..3 {
        cluster.stop(at);
    }
    for at in 0..3 {
        cluster.run(at, "new");
    }
    let mut hashes = Vec::new();
    for at in 0..3 {
        cluster.wait_healthy(at);
        assert_eq!(cluster.must(at, &everything), before, "member {at}");
        let compacted = cluster.ctl(at, &["get", "k1", "--rev=14"], "");
        assert!(compacted.stderr.contains("compacted"), "{compacted:?}");
        let hash = &cluster.json(at, &["endpoint", "hashkv"])[0]["HashKV"];
        hashes.push((hash["hash"].clone(), hash["compact_revision"].clone()));
    }
    assert!(
        hashes.windows(2).all(|pair| pair[0] == pair[1]),
        "{hashes:?}"
    );
}
