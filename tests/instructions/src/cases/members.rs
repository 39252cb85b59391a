//! Three members as values, which carry puts and linearizable reads out together: inputs in the order in which they
//! come, messages encoded and decoded as on a link, and disks that are durable at once.

use std::collections::VecDeque;

use prost::Message as _;
use quorate_core::node::{
    CheckpointPolicy, Effect, Input, LogPayload, Member, MemberConfig, MemberRecord,
    MemberRestored, PeerMessage, Proposal, RequestId, StateMachine,
};
use quorate_core::raft::{Config, LogShape, MemberId, Restored, Role};

use super::put::{KEYS, command};

const IDS: [MemberId; 3] = [1, 2, 3];
const TICK_MS: u64 = 100;
/// Far more than elections take.
const MOST_TICKS: u64 = 1000;

pub(super) fn puts_one_at_a_time(count: u64) {
    puts(count, 1);
}

pub(super) fn puts_32_at_a_time(count: u64) {
    puts(count, 32);
}

fn puts(count: u64, at_once: u64) {
    let mut cluster = Cluster::led();
    let leader = cluster.leader;
    for first in (0..count).step_by(usize::try_from(at_once).unwrap_or(1)) {
        let proposals = (first..first + at_once).map(|number| proposal(IDS[leader], number));
        cluster.give(leader, Input::Propose(proposals.collect()));
    }
    let applied = |server: &Server| server.machine.index() > count;
    assert!(cluster.answered == count && cluster.servers.iter().all(applied));
}

fn proposal(member: MemberId, number: u64) -> Proposal {
    let request = RequestId {
        member,
        boot_nonce: member,
        counter: number + 1,
    };
    Proposal {
        request,
        data: LogPayload::command(Some(request), command(number * 7 % KEYS)),
    }
}

pub(super) fn reads_at_the_leader(count: u64) {
    let cluster = Cluster::led();
    let leader = cluster.leader;
    reads(cluster, leader, count);
}

pub(super) fn reads_at_a_follower(count: u64) {
    let cluster = Cluster::led();
    let follower = (cluster.leader + 1) % IDS.len();
    reads(cluster, follower, count);
}

fn reads(mut cluster: Cluster, at: usize, count: u64) {
    for number in 0..count {
        cluster.give(at, Input::Read(vec![number]));
    }
    assert_eq!(cluster.ready, count);
}

struct Server {
    member: Member,
    machine: StateMachine,
}

struct Cluster {
    servers: Vec<Server>,
    /// By the receiver's place.
    inputs: VecDeque<(usize, Came)>,
    now: u64,
    leader: usize,
    answered: u64,
    ready: u64,
}

enum Came {
    Input(Input),
    Message { from: MemberId, bytes: Vec<u8> },
}

impl Cluster {
    /// Three members of which one leads.
    fn led() -> Cluster {
        let mut cluster = Cluster {
            servers: IDS.map(Server::founded).into(),
            inputs: VecDeque::new(),
            now: 0,
            leader: 0,
            answered: 0,
            ready: 0,
        };
        for (at, own) in IDS.into_iter().enumerate() {
            for id in IDS.into_iter().filter(|id| *id != own) {
                let disk_uuid = disk(id);
                cluster.give(at, Input::PeerDisk { id, disk_uuid });
            }
        }
        for _ in 0..MOST_TICKS {
            cluster.now += TICK_MS;
            (0..IDS.len()).for_each(|at| cluster.give(at, Input::Tick));
            let leads = |server: &Server| {
                let status = server.member.status();
                status.raft.role == Role::Leader && status.leader_with_quorum
            };
            if let Some(leader) = cluster.servers.iter().position(leads) {
                cluster.leader = leader;
                return cluster;
            }
        }
        unreachable!("no leader after {MOST_TICKS} ticks");
    }

    /// Hands an input over, and everything that follows from it.
    fn give(&mut self, at: usize, input: Input) {
        self.inputs.push_back((at, Came::Input(input)));
        while let Some((at, came)) = self.inputs.pop_front() {
            let input = match came {
                Came::Input(input) => input,
                Came::Message { from, bytes } => Input::Peer {
                    from,
                    message: PeerMessage::decode(&bytes[..]).expect("it was encoded before"),
                },
            };
            let mut effects = Vec::new();
            self.servers[at]
                .member
                .handle(self.now, input, &mut effects);
            effects
                .into_iter()
                .for_each(|effect| self.carry_out(at, effect));
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        let then = |input| (at, Came::Input(input));
        match effect {
            Effect::Write(batch) => self.inputs.push_back(then(Input::Persisted(batch.number))),
            Effect::Send { to, message } => {
                let (from, bytes) = (IDS[at], message.encode_to_vec());
                let receiver = IDS.iter().position(|id| *id == to).expect("a member");
                self.inputs
                    .push_back((receiver, Came::Message { from, bytes }));
            }
            Effect::Apply(entries) => {
                let machine = &mut self.servers[at].machine;
                for entry in &entries {
                    let applied = machine.apply(entry).expect("it is of this version");
                    let own = applied
                        .request
                        .is_some_and(|request| request.member == IDS[at]);
                    self.answered += u64::from(own);
                }
                std::hint::black_box(machine.view());
                let report = machine.take_report();
                self.inputs.push_back(then(Input::Applied(report)));
            }
            Effect::ReadReady { ids, .. } => self.ready += ids.len() as u64,
            Effect::Role(_) | Effect::Notice(_) => {}
            other => unreachable!("no case asks for {other:?}"),
        }
    }
}

impl Server {
    fn founded(id: MemberId) -> Server {
        let record = |id: MemberId| MemberRecord {
            id,
            name: format!("member-{id}"),
            peer_urls: vec![format!("http://member-{id}:2380")],
            started: true,
            ..MemberRecord::default()
        };
        let members = IDS.map(record).into();
        let founded = StateMachine::found(7, "", 0, members).expect("they differ");
        let checkpoint = founded.checkpoint();
        let (meta, chunks) = (checkpoint.meta, checkpoint.chunks);
        let (info, snapshot) = (meta.info(1), meta.snapshot());
        let machine = StateMachine::restore(id, id, meta, chunks);
        let mut machine = machine.expect("it was made just now");
        let restored = MemberRestored {
            raft: Restored {
                log: Some(LogShape::new(snapshot.index, snapshot.term)),
                snapshot,
                applied: machine.index(),
                ..Restored::default()
            },
            checkpoints: vec![info],
            machine: machine.take_report(),
        };
        let member = Member::new(config(id), restored).expect("a sound state");
        Server { member, machine }
    }
}

/// The defaults, without checkpoints, which are counted by themselves.
fn config(id: MemberId) -> MemberConfig {
    let mut config = MemberConfig::new(Config::new(id, id, id));
    config.tick_ms = TICK_MS;
    config.disk_uuid = disk(id);
    config.checkpoints = CheckpointPolicy {
        log_bytes: u64::MAX,
        entries: u64::MAX,
        ..CheckpointPolicy::default()
    };
    config
}

fn disk(id: MemberId) -> String {
    format!("disk-{id}")
}
