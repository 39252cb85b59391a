//! Small valid inputs for every decoder, written by our own encoders.

use std::sync::Arc;

use prost::Message as _;

use quorate::bolt::HEAD_BYTES;
use quorate::disk::double::MemoryDisk;
use quorate::disk::{Checkpoints, Disk, Identity, Log, LogOptions, Phase, Position, Starts};
use quorate::node::{
    Add, ChangeBody, InitialMember, LogPayload, Membership, MembershipCommand, PeerBody,
    PeerMessage, StateMachine,
};
use quorate::raft::{Body, ConfigurationChange, Entry, HardState, Heartbeat, Message};
use quorate::snapshot::{Contents, export};
use quorate::store::{
    AuthOperation, Command, DeleteRange, LeaseGrant, Operation, Put, RoleName, Store, Txn, UserAdd,
};
use quorate::wire::etcd;

/// Target, name and bytes.
pub(crate) type Seed = (&'static str, &'static str, Vec<u8>);

/// Every seed.
pub(crate) fn all() -> Vec<Seed> {
    let mut seeds = files();
    seeds.extend(machines());
    seeds.extend(wire());
    seeds.extend(http2());
    seeds.extend(texts());
    seeds.extend(records());
    seeds.extend(tokens());
    seeds.extend(certificates());
    seeds
}

fn chosen(choice: u8, bytes: &[u8]) -> Vec<u8> {
    [&[choice], bytes].concat()
}

/// Pieces in the format of the targets: a length in two bytes, a kind, the bytes.
fn pieces(pieces: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, bytes) in pieces {
        all.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        all.push(*kind);
        all.extend_from_slice(bytes);
    }
    all
}

/// Frames of a client: a unary call, one that is reset, and what belongs to a connection.
fn http2() -> Vec<Seed> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let length = payload.len() as u8;
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let settings = frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]);
    // `:method: POST`, `:scheme: http`, `:path: /a` and a `te: trailers` that becomes an entry of the table.
    let head = b"\x83\x86\x04\x02/a\x40\x02te\x08trailers";
    let message = [0, 0, 0, 0, 2, 7, 7];
    let call = [
        settings.clone(),
        frame(1, 4, 1, head),
        frame(0, 1, 1, &message),
        frame(8, 0, 0, &[0, 0, 1, 0]),
    ];
    let reset = [
        settings.clone(),
        frame(1, 0, 1, &head[..3]),
        frame(9, 4, 1, &head[3..]),
        frame(3, 0, 1, &[0, 0, 0, 8]),
        frame(1, 5, 3, b"\x83\x86\x84\xbe"),
    ];
    let others = [
        settings,
        frame(6, 0, 0, b"question"),
        frame(2, 0, 1, &[0, 0, 0, 0, 1]),
        frame(7, 0, 0, &[0; 8]),
    ];
    vec![
        ("http2", "call", chosen(200, &call.concat())),
        ("http2", "reset", chosen(3, &reset.concat())),
        ("http2", "others", chosen(1, &others.concat())),
    ]
}

fn files() -> Vec<Seed> {
    let memory = MemoryDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    disk.create_directory("log").unwrap();
    let uuid = *b"a disk to damage";
    let state = HardState {
        term: 1,
        vote: 0,
        commit: 0,
    };
    let options = LogOptions {
        segment_bytes: 4096,
    };
    let mut log =
        Log::create(Arc::clone(&disk), uuid, state, Position::default(), options).unwrap();
    log.append(
        None,
        &[
            Entry::normal(1, 1, "one"),
            Entry::normal(1, 2, vec![7; 600]),
        ],
    )
    .unwrap();
    let change = ConfigurationChange::AddLearner(12);
    let second = Entry::configuration_change(2, 2, change, "who".into());
    log.append(Some(&HardState { term: 2, ..state }), &[second])
        .unwrap();
    let segment = memory.contents("log/0000000000000001.log").unwrap();
    let last = segment.iter().rposition(|byte| *byte != 0).unwrap();

    // The header as the target seals it: first batch 1, term 1, no vote, commit index and previous entry 0, oldest
    // batch 1.
    let numbers: Vec<u8> = [1_u64, 1, 0, 0, 0, 0, 1]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    let entry = |index: u64, term: u64, kind: u32, data: &[u8]| {
        let (index, term, kind) = (index.to_le_bytes(), term.to_le_bytes(), kind.to_le_bytes());
        (2, [&index[..], &term, &kind, data].concat())
    };
    let state = (
        1,
        [2_u64, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect(),
    );
    let mut sealed = chosen(1, &numbers);
    for (before, records) in [
        (
            0_u64,
            vec![entry(1, 1, 0, b"one"), entry(2, 1, 0, &[7; 80])],
        ),
        (2, vec![state, entry(3, 2, 1, b"change")]),
    ] {
        let records = pieces(&records);
        sealed.extend_from_slice(&(records.len() as u16).to_le_bytes());
        sealed.extend_from_slice(&before.to_le_bytes());
        sealed.extend_from_slice(&u64::from(before > 0).to_le_bytes());
        sealed.extend_from_slice(&records);
    }
    let mut split = sealed.clone();
    split[0] = 3;
    split.insert(1, 3);

    let memory = MemoryDisk::new();
    memory.create_directory("checkpoints").unwrap();
    let checkpoints = Checkpoints::new(Arc::new(memory.clone()));
    let position = Position { index: 7, term: 3 };
    checkpoints
        .write(position, b"meta", ["one chunk", "and another"])
        .unwrap();
    let name = "checkpoints/0000000000000007-0000000000000003.checkpoint";
    let checkpoint = memory.contents(name).unwrap();
    let frames = [
        (1, b"meta".to_vec()),
        (2, b"one chunk".to_vec()),
        (2, vec![0; 40]),
    ];

    let memory = MemoryDisk::new();
    let mut identity = Identity::standby(uuid, "n1");
    identity.set_phase(Phase::Member);
    (identity.cluster_id, identity.member_id) = (77, 11);
    identity.peer_pins.insert(12, vec![12; 16]);
    let disk: Arc<dyn Disk> = Arc::new(memory.clone());
    identity.store(&disk).unwrap();
    Starts::begin(&disk, uuid, 1).unwrap();
    let mut starts = Starts::begin(&disk, uuid, 2).unwrap();
    let own = starts.own().clone();
    starts.note(12, "the disk of another", &own, |_| true);
    starts.store(&disk).unwrap();
    let written = memory.contents("starts").unwrap();
    vec![
        ("starts", "written", chosen(0, &written)),
        ("starts", "sealed", chosen(1, &written[20..])),
        ("log", "written", chosen(0, &segment[..=last])),
        ("log", "sealed", sealed),
        ("log", "two-segments", split),
        ("checkpoint", "written", chosen(0, &checkpoint)),
        (
            "checkpoint",
            "sealed",
            chosen(1, &chosen(0, &pieces(&frames))),
        ),
        (
            "identity",
            "written",
            chosen(0, &memory.contents("identity").unwrap()),
        ),
        ("identity", "sealed", chosen(1, &identity.encode_to_vec())),
    ]
}

fn operations() -> Vec<Operation> {
    let put = |key: &'static str, lease| {
        Operation::Put(Put {
            key: key.into(),
            value: "value".into(),
            lease,
            ..Put::default()
        })
    };
    let named = |name: &str| name.to_owned();
    vec![
        put("a", 0),
        Operation::LeaseGrant(LeaseGrant { id: 5, ttl: 60 }),
        put("b", 5),
        put("a", 0),
        Operation::DeleteRange(DeleteRange {
            key: "b".into(),
            ..DeleteRange::default()
        }),
        Operation::Txn(Txn::default()),
        Operation::Auth(
            AuthOperation::UserAdd(UserAdd {
                name: named("user"),
                password: "hash".into(),
                no_password: false,
            })
            .into(),
        ),
        Operation::Auth(
            AuthOperation::RoleAdd(RoleName {
                name: named("role"),
            })
            .into(),
        ),
    ]
}

fn membership() -> Membership {
    let member = InitialMember {
        name: "n1".to_owned(),
        peer_urls: vec!["http://a:1".to_owned()],
        client_urls: vec!["http://a:2".to_owned()],
        disk_uuid: "d".to_owned(),
    };
    Membership::bootstrap("uid", 1, "token", &[member]).unwrap()
}

fn change() -> MembershipCommand {
    ChangeBody::Add(Add {
        id: 12,
        peer_urls: vec!["http://b:1".to_owned()],
        learner: true,
        ..Add::default()
    })
    .into()
}

fn machines() -> Vec<Seed> {
    let mut machine = StateMachine::founded(membership());
    let mut log = Vec::new();
    for operation in operations() {
        let command = Command::from(operation);
        log.push((2, command.encode_to_vec()));
        let data = LogPayload::command(None, command);
        machine
            .apply(&Entry::normal(1, machine.index() + 1, data))
            .unwrap();
    }
    log.push((3, change().encode_to_vec()));
    log.push((0, LogPayload::settle(1).to_vec()));
    let checkpoint = machine.checkpoint();
    let meta = checkpoint.meta.encode_to_vec();
    let mut state = vec![u8::try_from(meta.len()).unwrap()];
    state.extend_from_slice(&meta);
    checkpoint
        .chunks
        .for_each(|chunk| state.extend_from_slice(&chunk));

    let mut store = Store::new();
    let at = quorate::store::Position { index: 1, term: 1 };
    for operation in operations() {
        store.apply(&operation.into(), at).unwrap();
    }
    let contents = Contents {
        view: store.publish(),
        membership: Arc::new(membership()),
        index: 9,
        term: 2,
    };
    let mut file = vec![0; HEAD_BYTES];
    let (head, _) = export(&contents, |bytes| {
        file.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    file[..HEAD_BYTES].copy_from_slice(&head);
    vec![
        ("entries", "operations", pieces(&log)),
        ("state", "checkpoint", state),
        ("database", "written", chosen(0, &file)),
        ("database", "sealed-and-raised", chosen(3, &file)),
    ]
}

fn wire() -> Vec<Seed> {
    let heartbeat = Message::new(1, 2, 3, Body::Heartbeat(Heartbeat::default()));
    let peer = PeerMessage::from(PeerBody::Raft(heartbeat)).encode_to_vec();
    let put = etcd::PutRequest {
        key: "a".into(),
        value: "b".into(),
        ..etcd::PutRequest::default()
    };
    let range = etcd::RangeRequest {
        key: "a".into(),
        range_end: "c".into(),
        limit: 2,
        sort_target: 1,
        sort_order: 2,
        ..etcd::RangeRequest::default()
    };
    let operation = |request| etcd::RequestOp {
        request: Some(request),
    };
    let txn = etcd::TxnRequest {
        compare: vec![etcd::Compare {
            key: "a".into(),
            target_union: Some(etcd::compare::TargetUnion::Version(1)),
            ..etcd::Compare::default()
        }],
        success: vec![operation(etcd::request_op::Request::RequestPut(
            put.clone(),
        ))],
        failure: vec![operation(etcd::request_op::Request::RequestRange(
            range.clone(),
        ))],
    };
    let delete = etcd::DeleteRangeRequest {
        key: "a".into(),
        range_end: "\0".into(),
        prev_kv: true,
    };
    let grant = etcd::LeaseGrantRequest { ttl: 60, id: 7 };
    let watch = etcd::WatchRequest {
        request_union: Some(etcd::watch_request::RequestUnion::CreateRequest(
            etcd::WatchCreateRequest {
                key: "a".into(),
                start_revision: 3,
                ..etcd::WatchCreateRequest::default()
            },
        )),
    };
    // A hello, a reply and the other messages, field by field: two numbers and a text.
    let fields = b"\x08\x01\x10\x07\x18\x09\x22\x04disk\x2a\x02n1".to_vec();
    vec![
        ("frames", "hello", chosen(1, &fields)),
        ("frames", "reply", chosen(3, &fields)),
        ("frames", "question", chosen(5, b"\x12\x02\x08\x01")),
        ("frames", "answer", chosen(7, b"\x0a\x02no\x10\x01")),
        ("frames", "checkpoint-head", chosen(9, b"\x08\x03\x10\x07\x18\x02\x22\x04meta")),
        ("frames", "checkpoint-part", chosen(11, b"\x0a\x05chunk\x10\x09")),
        ("frames", "checkpoint-done", chosen(13, b"\x08\x01")),
        ("frames", "peer", chosen(15, &peer)),
        ("requests", "put", chosen(0, &put.encode_to_vec())),
        ("requests", "delete", chosen(1, &delete.encode_to_vec())),
        ("requests", "txn", chosen(2, &txn.encode_to_vec())),
        ("requests", "range", chosen(3, &range.encode_to_vec())),
        ("requests", "grant", chosen(4, &grant.encode_to_vec())),
        ("requests", "watch", chosen(5, &watch.encode_to_vec())),
        ("json", "range", chosen(0, br#"{"key":"YQ==","limit":"2","sort_order":"DESCEND"}"#)),
        (
            "json",
            "txn",
            chosen(3, br#"{"compare":[{"key":"YQ==","target":"VALUE","value":"Yg=="}],"success":[{"requestPut":{"key":"YQ==","value":"Yg=="}}]}"#),
        ),
        ("json", "watch", chosen(5, br#"{"create_request":{"key":"YQ==","filters":["NOPUT"]}}"#)),
        (
            "stream",
            "watches",
            chosen(5, &chosen(7, br#"{"create_request":{"key":"YQ=="}} {"cancel_request":{"watch_id":"1"}}
{"progress_request":{}}"#)),
        ),
    ]
}

fn texts() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "flags",
            "cluster",
            text(
                "--name=n1\n--initial-cluster=n1=http://[::1]:2380,n2=https://b:2380\n--initial-advertise-peer-urls=http://[::1]:2380\n--listen-peer-urls\nhttp://0.0.0.0:2380\n--heartbeat-interval=100\n--election-timeout=1000\nETCD_QUOTA_BACKEND_BYTES=0\n",
            ),
        ),
        (
            "flags",
            "others",
            text(
                "--auto-compaction-retention=1h30m\n--auto-compaction-mode=periodic\n--auth-token=jwt,pub-key=a,sign-method=RS256,ttl=5m\n--cors=*\n--log-level=debug\n--grpc-keepalive-min-time=5s\nhttp://host:80\n",
            ),
        ),
        (
            "config",
            "settings",
            text(
                "name: n1\ndata-dir: /tmp/d\nheartbeat-interval: 100\nauto-compaction-retention: \"1h\"\nlisten-client-urls: http://127.0.0.1:2379\nadvertise-client-urls: http://127.0.0.1:2379\ngrpc-keepalive-timeout: 20000000000\nclient-transport-security:\n  client-cert-auth: false\n  auto-tls: false\n",
            ),
        ),
        (
            "config",
            "json",
            text(r#"{"name": "n1", "cors": ["a", "b"], "pre-vote": true}"#),
        ),
        (
            "cluster",
            "sample",
            include_bytes!("../../deploy/samples/cluster.yaml").to_vec(),
        ),
        (
            "cluster",
            "local",
            include_bytes!("../../deploy/samples/local-demo.yaml").to_vec(),
        ),
        (
            "cluster",
            "anchors",
            text(
                "apiVersion: quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: &m {name: demo, labels: {a: b}}\nspec:\n  replicas: 3\n  storage: {size: 1Gi}\n  x: [*m, *m]\n",
            ),
        ),
    ]
}

fn records() -> Vec<Seed> {
    let claim = br#"{"uid":"u","member":"demo-1","cluster_uid":"c","state":"joined","terminating":false,"bytes":1,"owned":true}"#;
    let state = br#"{"cluster":"demo","cluster_uid":"c","epoch":3,"generation":2,"spec":{"replicas":3},"status":{"phase":"Ready","members":[{"name":"demo-1","role":"Voter","restarts":2}],"step":{"action":"AddLearner","member":"demo-2","startTime":"2026-01-02T03:04:05Z"}},"identity Secret":{"incarnation":1,"seed":"demo-1","nonce":"n"},"sets":{"demo-1":{"uid":"s","claim":"demo-1","input_hash":"h","created_ms":5,"arguments":["--name=demo-1"]}},"ports":{"demo-1":{"client":12000,"peer":12001}}}"#;
    vec![
        ("records", "claim", chosen(0, claim)),
        ("records", "state", chosen(1, state)),
    ]
}

/// Kinds as in the target: 0 is a token, 4 a text to sign, 2 a public and 6 a private key with the method in the upper
/// bits, 3 and 7 a proof.
fn tokens() -> Vec<Seed> {
    let claims = br#"{"alg":"HS256","typ":"JWT"}
{"exp":2000000,"nbf":5.5,"revision":7,"username":"alice"}"#;
    let pem = |label: &str, body: &str| {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").into_bytes()
    };
    // Ed25519 is the thirteenth method: a public and a private key of zeros.
    let public = pem(
        "PUBLIC KEY",
        "MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    );
    let private = pem(
        "PRIVATE KEY",
        "MC4CAQAwBQYDK2VwBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    );
    vec![
        (
            "tokens",
            "letters",
            chosen(0, b"eyJhbGciOiJIUzI1NiJ9.e30.AAAA"),
        ),
        ("tokens", "claims", chosen(4, claims)),
        ("tokens", "public-key", chosen(2 | 12 << 3, &public)),
        ("tokens", "private-key", chosen(6 | 12 << 3, &private)),
        (
            "tokens",
            "proof",
            chosen(3, b"1000000\n0a0b\n00ff\nthe call"),
        ),
        (
            "tokens",
            "right-proof",
            chosen(7, b"1000000\n0a0b\n\nthe call"),
        ),
    ]
}

/// A self-signed certificate that is valid for a century, as DER and as a PEM file that contains it twice.
fn certificates() -> Vec<Seed> {
    use base64::Engine as _;
    let pem = include_str!("certificate.pem");
    let lines = pem.lines().filter(|line| !line.starts_with("-----"));
    let der = base64::engine::general_purpose::STANDARD
        .decode(lines.collect::<String>())
        .unwrap();
    let twice = format!("{pem}{pem}");
    vec![
        ("certificates", "der", chosen(0, &der)),
        ("certificates", "pem", chosen(1, twice.as_bytes())),
    ]
}
