//! The same random requests, over gRPC, to Quorate and to real etcd: equal answers, equal error
//! texts and codes, equal hashes. `OPS` makes it longer, `SEED` chooses another run.

use crate::cluster::{Cluster, Kind};
use crate::dice::{Dice, Question, question};
use crate::process::peers;
use crate::server::Server;
use crate::story::ours;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Asks a cluster of this many members, a random one each time, and a single real etcd.
fn converse(test: &str, size: usize, operations: u64) {
    let Some(peers) = peers(test) else { return };
    let seed = number("SEED", 1);
    let mut dice = Dice::new(seed);
    let ours = Cluster::start(ours(), &peers, size);
    let theirs = Cluster::start(Kind::Etcd, &peers, 1);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let mut here: Vec<Server> = (0..size).map(|at| Server::new(&ours, at)).collect();
        let mut there = Server::new(&theirs, 0);
        let (mut revision, mut compactions) = (1, Vec::new());
        for operation in 0..operations {
            let mut question = question(&mut dice, revision, &compactions);
            let member = dice.below(size as u64) as usize;
            if size > 1 {
                question.be_linearizable();
                here[member].reach(revision).await;
            }
            let (own, said) = here[member].ask(&question).await;
            let (other, expected) = there.ask(&question).await;
            let at = format!("seed {seed}, operation {operation} at {member}: {question:?}");
            assert_eq!(said, expected, "{at}\n(ours on the left)\n{}", ours.logs());
            assert_eq!(own, other, "{at}");
            revision = own.unwrap_or(revision).max(revision);
            if let (Question::Compact(compact), Some(_)) = (&question, own) {
                compactions.push(compact.revision);
            }
        }
        let tame = revision < operations as i64 / 4 || compactions.len() < 3;
        assert!(!tame, "the run was too tame: {revision}, {compactions:?}");
    });
}

#[test]
fn random_requests_are_answered_as_etcd_does() {
    let operations = number("OPS", 3000);
    converse("random_requests_are_answered_as_etcd_does", 1, operations);
}

#[test]
fn random_requests_to_random_members_are_answered_as_by_one() {
    let operations = number("OPS", 1000);
    let test = "random_requests_to_random_members_are_answered_as_by_one";
    converse(test, 3, operations);
}
