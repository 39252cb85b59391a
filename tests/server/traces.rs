//! Spans of requests, as a collector of OTLP receives them from a server, and the lines about slow requests.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;
use quorate::wire::etcd::lease_client::LeaseClient;
use quorate::wire::etcd::request_op::Request as Operation;
use quorate::wire::etcd::{self, kv_client::KvClient};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::fixture::{Server, binary, ended, everything, put};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A collector that keeps what it is sent, and the header `authorization` of that.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<ResourceSpans>>>, Arc<Mutex<Vec<String>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let given = request.metadata().get("authorization");
        let given = given.map(|value| value.to_str().expect("ASCII").to_owned());
        self.1.lock().expect("no panic").extend(given);
        let came = request.into_inner().resource_spans;
        self.0.lock().expect("no panic").extend(came);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> (Collector, SocketAddr) {
        let collector = Collector::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(collector.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (collector, address)
    }

    /// Everything that has come, with its encoding to search in.
    fn came(&self) -> (Vec<Span>, Vec<u8>) {
        let resources = self.0.lock().expect("no panic").clone();
        let bytes = resources.iter().flat_map(ResourceSpans::encode_to_vec);
        let bytes = bytes.collect();
        let scopes = resources.into_iter().flat_map(|one| one.scope_spans);
        (scopes.flat_map(|scope| scope.spans).collect(), bytes)
    }

    /// The spans, once there are so many of requests.
    async fn requests(&self, wanted: usize) -> Vec<Span> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let (spans, _) = self.came();
            let requests = spans.iter().filter(|span| span.name.contains('/'));
            if requests.count() >= wanted {
                return spans;
            }
            assert!(Instant::now() < deadline, "only {spans:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn tracing_to(address: SocketAddr, rate: u32, more: &[&str]) -> Server {
    let arguments = arguments(address, rate, more);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Server::start(&arguments)
}

fn arguments(address: SocketAddr, rate: u32, more: &[&str]) -> Vec<String> {
    let mut arguments = vec![
        "--enable-distributed-tracing".to_owned(),
        format!("--distributed-tracing-address={address}"),
        format!("--distributed-tracing-sampling-rate={rate}"),
        "--distributed-tracing-instance-id=one".to_owned(),
    ];
    arguments.extend(more.iter().map(|text| (*text).to_owned()));
    arguments
}

/// A request whose caller has this span, sampled if the flags say so.
fn called<T>(message: T, trace: &str, flags: &str) -> Request<T> {
    let mut request = Request::new(message);
    let parent = format!("00-{trace}-{PARENT}-{flags}");
    let parent = parent.parse().expect("a value");
    request.metadata_mut().insert("traceparent", parent);
    request
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(of: &[KeyValue]) -> BTreeMap<&str, String> {
    let shown = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let value = |one: &KeyValue| one.value.clone().and_then(|value| value.value);
    let pairs = of
        .iter()
        .filter_map(|one| Some((one.key.as_str(), shown(&value(one)?))));
    pairs.collect()
}

/// The spans below this one, by when they began.
fn below<'a>(spans: &'a [Span], parent: &Span) -> Vec<&'a Span> {
    let mut found: Vec<&Span> = spans
        .iter()
        .filter(|span| span.parent_span_id == parent.span_id)
        .collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found
}

fn names(spans: &[&Span]) -> Vec<String> {
    spans.iter().map(|span| span.name.clone()).collect()
}

/// At rate 0 nothing is sampled but what the caller has sampled, whichever way the request takes through the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_span_decides_and_is_the_parent() {
    let (collector, address) = Collector::start().await;
    for gates in [
        "--feature-gates=OwnHTTP2=true",
        "--feature-gates=OwnHTTP2=false",
    ] {
        collector.0.lock().expect("no panic").clear();
        let server = tracing_to(address, 0, &[gates]);
        let mut kv = server.kv().await;
        let secret = put("/registry/secrets/a/b", "the-value");
        kv.put(secret.clone()).await.expect("no parent");
        let unsampled = called(secret.clone(), &"1".repeat(32), "00");
        kv.put(unsampled).await.expect("an unsampled one");
        let broken = called(secret.clone(), &"0".repeat(32), "01");
        kv.put(broken).await.expect("an invalid one");
        kv.put(called(secret, TRACE, "01")).await.expect("sampled");
        // Of the router, and not answered in front of it.
        let compaction = etcd::CompactionRequest {
            revision: 3,
            physical: false,
        };
        kv.compact(called(compaction, TRACE, "01"))
            .await
            .expect("sampled");
        by_the_gateway(&server.host);

        let spans = collector.requests(3).await;
        let mut own: Vec<&Span> = spans.iter().filter(|it| it.name.contains('/')).collect();
        own.sort_by_key(|span| span.start_time_unix_nano);
        let want = [
            "etcdserverpb.KV/Put",
            "etcdserverpb.KV/Compact",
            "etcdserverpb.KV/Put",
        ];
        assert_eq!(names(&own), want, "{gates}");
        for span in &own {
            assert_eq!(hex(&span.trace_id), TRACE);
            assert_eq!(hex(&span.parent_span_id), PARENT);
            assert_eq!((span.kind, span.flags), (2, 0x301));
            let stages = below(&spans, span);
            assert_eq!(names(&stages).first().map(String::as_str), Some("queued"));
            assert!(stages.iter().all(|stage| hex(&stage.trace_id) == TRACE));
        }
        let about = attributes(&own[0].attributes);
        for (name, value) in [
            ("rpc.system", "grpc"),
            ("rpc.service", "etcdserverpb.KV"),
            ("rpc.method", "Put"),
            ("rpc.grpc.status_code", "0"),
            ("client.address", "127.0.0.1"),
            ("key", "/registry/secrets/a/b"),
            ("req_size", "34"),
        ] {
            assert_eq!(about.get(name).map(String::as_str), Some(value), "{name}");
        }
        let (_, bytes) = collector.came();
        let told = String::from_utf8_lossy(&bytes);
        assert!(told.contains("/registry/secrets") && !told.contains("the-value"));
        let resource = collector.0.lock().expect("no panic")[0].resource.clone();
        let resource = resource.expect("one").attributes;
        let resource = attributes(&resource);
        assert_eq!(resource["service.name"], "etcd");
        assert_eq!(resource["service.instance.id"], "one");
        // Nothing comes later of the others either.
        let (code, log) = server.terminate();
        assert_eq!(code, 0, "{log}");
        assert_eq!(collector.came().0.len(), spans.len());
    }
}

/// A put as JSON, which the router answers.
fn by_the_gateway(host: &str) {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect((host, 2379)).expect("connects");
    // The keys and values of JSON are base64.
    let body = r#"{"key":"a2V5","value":"dmFsdWU="}"#;
    let head = format!(
        "POST /v3/kv/put HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {}\r\n\
         grpc-metadata-traceparent: 00-{TRACE}-{PARENT}-01\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// One request of each kind, in this order of their names.
async fn one_of_each(channel: Channel) -> Vec<&'static str> {
    let (mut kv, mut lease) = (KvClient::new(channel.clone()), LeaseClient::new(channel));
    kv.put(put("a", "1")).await.expect("put");
    kv.range(everything()).await.expect("read");
    let local = etcd::RangeRequest {
        serializable: true,
        ..everything()
    };
    kv.range(local).await.expect("read here");
    let operation = etcd::RequestOp {
        request: Some(Operation::RequestPut(put("b", "2"))),
    };
    let txn = etcd::TxnRequest {
        success: vec![operation],
        ..Default::default()
    };
    kv.txn(txn).await.expect("changed");
    let delete = etcd::DeleteRangeRequest {
        key: "a".into(),
        ..Default::default()
    };
    kv.delete_range(delete).await.expect("deleted");
    let grant = etcd::LeaseGrantRequest { ttl: 60, id: 7 };
    lease.lease_grant(grant).await.expect("granted");
    let times = etcd::LeaseTimeToLiveRequest { id: 7, keys: false };
    lease.lease_time_to_live(times).await.expect("known");
    let revoke = etcd::LeaseRevokeRequest { id: 7 };
    lease.lease_revoke(revoke).await.expect("revoked");
    let again = etcd::LeaseRevokeRequest { id: 7 };
    lease.lease_revoke(again).await.expect_err("it is gone");
    vec![
        "KV/Put",
        "KV/Range",
        "KV/Range",
        "KV/Txn",
        "KV/DeleteRange",
        "Lease/LeaseGrant",
        "Lease/LeaseTimeToLive",
        "Lease/LeaseRevoke",
        "Lease/LeaseRevoke",
    ]
}

/// A collector that wants to know who sends had to be behind another one: nothing could be sent with the spans.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_the_environment_go_with_the_spans() {
    let (collector, address) = Collector::start().await;
    let arguments = arguments(address, 1_000_000, &["--log-level=debug"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let variable = "OTEL_EXPORTER_OTLP_HEADERS";
    let server = Server::with_variable((variable, "authorization=Bearer%20a-token"), &arguments);
    let mut kv = server.kv().await;
    kv.put(put("a", "1")).await.expect("put");
    collector.requests(1).await;
    let given = collector.1.lock().expect("no panic").clone();
    assert_eq!(given.first().map(String::as_str), Some("Bearer a-token"));
    let (_, log) = server.terminate();
    assert!(!log.contains("a-token"), "{log}");

    let mut command = binary();
    command
        .arg("server")
        .args(&arguments)
        .env(variable, "a-token");
    let (code, text) = ended(&command.output().expect("runs"));
    let wanted = "environment variable OTEL_EXPORTER_OTLP_HEADERS: header 1 has no '='";
    assert!(code == 2 && text.contains(wanted), "{code}: {text}");
    assert!(!text.contains("a-token"), "{text}");
}

/// At the highest rate each request has a trace of its own, and its stages are all of the time in which it waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stages_add_up_to_the_request() {
    let (collector, address) = Collector::start().await;
    let server = tracing_to(address, 1_000_000, &[]);
    let wanted = one_of_each(server.channel().await).await;
    let spans = collector.requests(wanted.len()).await;
    let mut own: Vec<&Span> = spans.iter().filter(|it| it.name.contains('/')).collect();
    own.sort_by_key(|span| span.start_time_unix_nano);
    let short = own
        .iter()
        .map(|span| span.name.trim_start_matches("etcdserverpb."));
    assert_eq!(short.collect::<Vec<_>>(), wanted);
    let mut traces: Vec<String> = own.iter().map(|span| hex(&span.trace_id)).collect();
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), wanted.len(), "each has a trace of its own");

    let writes = ["queued", "replicated", "applied", "answered"];
    let reads = ["read_index"];
    let all: [&[&str]; 9] = [
        &writes,
        &reads,
        &[],
        &writes,
        &writes,
        &writes,
        &["lease"],
        &writes,
        &writes,
    ];
    for (span, want) in own.iter().zip(all) {
        assert!(
            span.parent_span_id.is_empty() && span.flags == 0x101,
            "{span:?}"
        );
        let stages = below(&spans, span);
        // A stage that took less than the clock shows is left out.
        let known = names(&stages);
        assert!(
            known.iter().all(|name| want.contains(&name.as_str())),
            "{known:?}"
        );
        let least = want.len().saturating_sub(1).max(want.len().min(1));
        assert!(known.len() >= least, "{} has {known:?}", span.name);
        let mut at = span.start_time_unix_nano;
        for (number, stage) in stages.iter().enumerate() {
            let gap = stage.start_time_unix_nano - at;
            assert!(
                number == 0 || gap == 0,
                "{known:?}: {gap} ns are in no stage"
            );
            assert!(stage.end_time_unix_nano > stage.start_time_unix_nano);
            at = stage.end_time_unix_nano;
        }
        assert!(at <= span.end_time_unix_nano, "{known:?}");
    }
    let logged = spans.iter().filter(|span| span.name == "replicated");
    let logged = logged.filter(|span| span.events.iter().any(|event| event.name == "logged"));
    assert!(logged.count() >= 5, "what one member commits, its log has");
    // What the caller did wrong is its code, and no error of the server's.
    let refused = attributes(&own[8].attributes);
    assert_eq!(
        (
            refused["rpc.grpc.status_code"].as_str(),
            refused["id"].as_str()
        ),
        ("5", "7")
    );
    assert_eq!(own[8].status, None);
}

/// How many spans a server says that it has sent, and dropped.
fn counted(server: &Server) -> (u64, u64) {
    let page = server.get("/metrics");
    let of = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.trim().parse().ok());
        number.expect("a metric")
    };
    (
        of("quorate_server_spans_exported_total "),
        of("quorate_server_spans_dropped_total "),
    )
}

/// So many puts, many at a time.
async fn puts(server: &Server, number: usize) -> Duration {
    let channel = server.channel().await;
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..100 {
        let mut kv = KvClient::new(channel.clone());
        tasks.spawn(async move {
            for _ in 0..number / 100 {
                kv.put(put(&format!("k{client}"), "v"))
                    .await
                    .expect("served");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    began.elapsed()
}

/// The log's lines about the collector.
fn warnings(log: &str) -> Vec<&str> {
    let about = |line: &&str| line.contains("the collector of traces");
    log.lines().filter(about).collect()
}

/// Nobody listens: requests go on, what does not fit is counted, one line says so, and the server ends at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_nothing() {
    // A port that no test is given.
    let address = "127.0.0.1:1".parse().expect("an address");
    let server = tracing_to(address, 1_000_000, &[]);
    puts(&server, 5000).await;
    let (exported, dropped) = counted(&server);
    assert_eq!(exported, 0);
    // The queue, a batch and what is gathered hold 2,560 at most.
    assert!(dropped >= 2000, "{dropped}");
    let began = Instant::now();
    let (code, log) = server.terminate();
    assert_eq!(code, 0, "{log}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "it took {took:?} to end");
    let warned = warnings(&log);
    assert_eq!(warned.len(), 1, "{log}");
    assert!(warned[0].contains("does not take spans"), "{log}");
}

/// It takes connections and never answers: the server waits two seconds for it when it ends, and not as long as for an
/// answer (ten); a busy machine has its part of the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_keeps_no_server_from_ending() {
    let hangs = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = hangs.local_addr().expect("bound");
    let server = tracing_to(address, 1_000_000, &[]);
    puts(&server, 1000).await;
    let began = Instant::now();
    let (code, log) = server.terminate();
    assert_eq!(code, 0, "{log}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(8), "it took {took:?} to end");
    assert!(
        log.contains("spans were left that no collector has taken"),
        "{log}"
    );
    drop(hangs);
}

/// What is sent last is sent when the server ends, and counted until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_is_sent_at_the_end() {
    let (collector, address) = Collector::start().await;
    let server = tracing_to(address, 1_000_000, &[]);
    puts(&server, 100).await;
    collector.requests(100).await;
    // It counts what was answered, a moment after the collector has it.
    let deadline = Instant::now() + Duration::from_secs(10);
    while counted(&server).0 < 400 {
        assert!(
            Instant::now() < deadline,
            "{:?} of 100 puts and their stages",
            counted(&server)
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(counted(&server).1, 0);
    // As many as one batch holds: two seconds are enough for it on any machine.
    puts(&server, 200).await;
    let (code, log) = server.terminate();
    assert_eq!((code, warnings(&log).len()), (0, 0), "{log}");
    let (spans, _) = collector.came();
    let own = spans.iter().filter(|span| span.name.ends_with("KV/Put"));
    assert_eq!(own.count(), 300);
}

/// The line about a slow request says where its time went, and nothing of its value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_requests_are_told_with_their_stages() {
    let server = Server::start(&["--warning-unary-request-duration=-1ns"]);
    let key = "k".repeat(40);
    let request = called(put(&key, "the-value"), TRACE, "00");
    server.kv().await.put(request).await.expect("served");
    let (_, log) = server.terminate();
    let line = log.lines().find(|line| line.contains("\"method\":\"Put\""));
    let line = line.unwrap_or_else(|| panic!("no line of a put in {log}"));
    let told: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(told["msg"], "a request took long", "{line}");
    assert_eq!(told["key"], format!("{}...", "k".repeat(32)), "{line}");
    assert_eq!(told["size"], 53, "{line}");
    assert_eq!(told["from"], "127.0.0.1", "{line}");
    assert_eq!(told["trace"], TRACE, "{line}");
    let request = told["request"].as_str().expect("a text");
    assert!(
        request.len() > 17 && request.as_bytes()[16] == b'-',
        "{line}"
    );
    let stages = told["stages"].as_str().expect("a text");
    for stage in ["admitted ", "replicated ", "; logged here after "] {
        assert!(stages.contains(stage), "{line}");
    }
    assert!(!log.contains("the-value"));
}
